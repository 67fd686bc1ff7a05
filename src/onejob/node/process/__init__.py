"""Process runtime: containers as processes of this host.

`runtime` is the entry point; `supervisor_client` talks to `node.supervisor`, the process that
outlives the server.
"""
