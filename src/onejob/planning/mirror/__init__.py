"""Decisions about Jobs that run on a remote cluster: what to do next with the copy, what its status
means here. `planner` decides; `copying`, `status` and `stand_ins` make the documents."""
