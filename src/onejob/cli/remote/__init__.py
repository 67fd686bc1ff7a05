"""Runs on a Kubernetes API server (`run --on`): preflight, creation, following, reattachment."""
