"""Controller decisions as pure functions: objects and a time in, a plan out, no I/O or clock.

`job`, `cronjob` and `pod` hold the decisions of the controllers and the node agent; the other
subpackages and modules cover queueing, quota, RBAC, mirroring, notifications, namespaces, ownership
and TTLs.
"""
