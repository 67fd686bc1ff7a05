"""What the Job controller should do: one sync of one Job as a pure function.

`planner` is the entry point and `plan` its result; the other modules each answer one question of
a sync (who is claimed, what is counted, when to retry, which indexes).
"""
