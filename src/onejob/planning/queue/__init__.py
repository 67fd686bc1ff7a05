"""Job queue: concurrency limits, and the order in which waiting Jobs start.

`limits` parses the limits, `order` decides which Jobs start, `membership` reads a Job's queue
state, `forecast` estimates start times for users.
"""
