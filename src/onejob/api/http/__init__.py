"""HTTPS transport of the API: connections, routing, request bodies, responses and streams.

`serving` is the listener, `connection` reads requests, `app` turns them into responses. This
package makes no decisions about objects; it calls `api.service`. Nothing below `api` imports from
here.
"""
