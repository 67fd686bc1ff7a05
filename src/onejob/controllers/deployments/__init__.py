"""Controllers of Deployments and ReplicaSets, created with the first object of either kind."""
