"""Informers and work queues: cached, watched API objects for controllers, after client-go.

An informer lists a resource, watches it and maintains a cache of typed views with indexes; handlers
are called with each batch of changes. `SharedInformers` is the entry point; `work` runs a reconcile
function on the keys of a `WorkQueue`.

Guarantees:
    Handlers run after the cache contains the changes they receive. After a disconnect or a 410 the
    cache is brought up to date by a watch or a new list; objects deleted in between are reported as
    deleted.

Requirements:
    Controllers and the node agent only read caches. Handlers are synchronous and return quickly,
    because they run on the event loop; they usually just add a key to a queue.
"""
