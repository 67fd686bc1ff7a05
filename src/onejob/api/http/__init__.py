"""HTTPS transport of the API: connections, routing, request bodies, responses and streams.

`app` is the ASGI application and `serving` the listener. This package makes no decisions about
objects; it calls `api.service`. Nothing below `api` imports from here.
"""
