"""Job queue: concurrency limits, and the order in which waiting Jobs start.

`limits` parses the limits, `line` decides which Jobs start, `standing` reads a Job's queue state,
`forecast` estimates start times for users.
"""
