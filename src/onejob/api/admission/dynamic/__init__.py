"""Dynamic admission: policies and webhooks that users configure, called for matching writes.

`chain` runs the plugins of a server in upstream's order, `plugins` is their interface, and
`attributes` describes one request. Writes are evaluated by `api.writing.reviewed`.
"""
