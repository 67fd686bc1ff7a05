"""The one process that owns a node's workloads; it outlives the server.

Single-threaded, standard library only and small: it is started without `site` and imports
nothing of onejob outside this package. It does as it is told over a unix socket, and it
remembers, in a journal, what it started and how it ended.
"""
