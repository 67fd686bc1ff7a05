"""Persistence: SQLite as a revision log with watches, like etcd for one process.

`base.Store` is the interface and `log.LogStore` its implementation. Nothing else in onejob writes
API objects to disk.
"""
