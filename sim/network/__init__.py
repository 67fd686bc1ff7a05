"""Simulated network: the production HTTP client and server, with connections in memory.

`loop.py` has an event loop whose `create_connection` stays in this process, `links.py` carries the
bytes and injects the faults, `server.py` connects the production HTTP front to a control plane.
"""
