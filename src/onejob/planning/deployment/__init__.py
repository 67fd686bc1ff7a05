"""Deployments and ReplicaSets: how many Pods to create or delete, roll-outs and their status."""
