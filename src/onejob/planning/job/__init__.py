"""Job reconciliation as a pure function: plan one sync of one Job.

`planner` is the entry point and `plan` defines its result. Every other module decides one aspect of
a sync: Pod ownership, counters, retry delay, completion indexes.
"""
