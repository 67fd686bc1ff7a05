"""CronJob scheduling: schedules, time zones, due times and history.

`planner` is the entry point.
"""
