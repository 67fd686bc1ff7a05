"""World of races: a control plane with slow requests, and users who change objects meanwhile.

Between the reads and the writes of a controller, names are reused by other objects, owners and
queues change and TTLs are raised. `deletions.py` checks that no object is deleted that should stay.
"""
