"""Persistence: SQLite as a revision log with watches, like etcd for one process.

`base.Store` is the interface and `log.LogStore` its implementation. No other package of onejob
writes API objects to disk.
"""
