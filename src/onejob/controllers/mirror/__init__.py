"""Mirroring: run Jobs with `managedBy: onejob.dev/mirror` on a remote cluster.

`on_demand` is the only module that a server without mirrored Jobs loads. `controller` observes and
executes the steps that `onejob.planning.mirror.planner` decides on; `remote` is one target, `pods`
maintains local stand-ins for the remote Pods, `sessions` forwards their logs and terminals.
"""
