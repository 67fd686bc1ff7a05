"""Mirroring of Jobs to a remote cluster: next step for the copy, and the resulting local status.

`planner` decides; `copying`, `status` and `stand_ins` build the documents.
"""
