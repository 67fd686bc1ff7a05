"""Caches of API objects and work queues, as client-go has them.

An informer lists a resource, watches it and keeps a cache of typed views with indexes; handlers
are called with each batch of changes. Controllers and the node agent read these caches and never
write to them. `SharedInformers` is the entry point; `work` runs a reconcile function on a queue.
"""
