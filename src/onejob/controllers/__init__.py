"""The controllers: Jobs, CronJobs, TTL, garbage collection, Pod garbage, namespaces, Events.

Each reads its objects from informers, lets `planning` decide and writes the result through a
`Client`. To add one: a module here, its decisions in `planning`, one line in `onejob.server`.
"""
