"""The decisions as pure functions: objects and a time in, a plan out. No I/O, no clock, no await.

`job`, `cronjob` and `pod` hold the decisions of the controllers and the node agent; the modules
beside them are for namespaces, ownership and TTLs.
"""
