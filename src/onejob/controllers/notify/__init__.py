"""Notifications of Jobs and CronJobs to configured targets (webhook, command, mail).

Only imported by a server with a notification configuration.
"""
