"""When CronJobs are due and what is then to be done: schedules, time zones, history.

`planner` is the entry point.
"""
