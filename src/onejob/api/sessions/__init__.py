"""What stays open between a client and a Pod: logs, exec, attach and forwarded ports.

WebSocket channels and SPDY streams are carried here; what is at the other end is the node's.
"""
