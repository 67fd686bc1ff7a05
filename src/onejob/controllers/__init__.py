"""Controllers: Jobs, CronJobs, TTL, garbage collection, Pod garbage, namespaces, Events.

Each controller reads its objects from informers, calls `planning` for decisions and writes the
result through a `Client`. To add one: a module here, its decisions in `planning`, one function
and one row of the table in `onejob.assembly.controllers`.
"""
