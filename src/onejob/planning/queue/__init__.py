"""The queue of Jobs: how many may run at once, and which of those that wait is next.

`limits` reads what is allowed, `line` decides who may start, `standing` reads a Job's part in it,
`forecast` estimates for people when a Job may start.
"""
