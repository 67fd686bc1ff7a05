"""Decisions about workflows: graphs of Jobs.

`checks` validates a spec, `graph` has its edges, `planner` decides one sync, `conditions` evaluates
`when`, `results` passes values between tasks, and `rerun` makes a workflow that repeats part of
another one.
"""
