"""Deadlines for pending Pods: fail Pods that are not started in time."""
