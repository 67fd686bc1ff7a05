"""A simulated network: the production HTTP client and server, with connections in memory.

`loop.py` gives an event loop whose `create_connection` stays in this process, `links.py` carries
the bytes and has the faults, `server.py` puts the production HTTP front before a control plane.
"""
