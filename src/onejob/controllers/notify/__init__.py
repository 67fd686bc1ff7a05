"""Sends notifications of Jobs and CronJobs to the targets of the server's configuration. Only
imported by a server that has one."""
