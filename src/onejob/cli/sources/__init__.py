"""API access for client commands: a running server, or the store of a kept run.

`sources` selects between them; `base` defines the interface that both implement.
"""
