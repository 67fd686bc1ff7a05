"""Streaming sessions between a client and a Pod: logs, exec, attach and port forwarding.

This package handles the client side: WebSocket channels and SPDY streams. The node implements the
Pod side.
"""
