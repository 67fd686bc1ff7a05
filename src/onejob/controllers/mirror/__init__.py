"""Runs Jobs with `managedBy: onejob.dev/mirror` on a remote cluster, through two `Client`s.

`on_demand` is all that a server without mirrored Jobs loads. `controller` observes and takes the
steps that `onejob.planning.mirror.planner` decides on; `remote` is one target, `pods` keeps Pods
here that stand in for the remote ones, `sessions` brings their logs and terminals.
"""
