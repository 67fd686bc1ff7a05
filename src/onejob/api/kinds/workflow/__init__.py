"""Rules of Workflows and CronWorkflows."""
