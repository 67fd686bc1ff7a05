"""The API over HTTPS: connections, requests, routes, bodies, answers and streams.

`app` is the entry point and `serving` the listener. Decides nothing about objects: it asks
`api.service`. Nothing below `api` imports from here.
"""
