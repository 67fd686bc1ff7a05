"""Execution of the commands in README, tutorial and how-to pages."""
