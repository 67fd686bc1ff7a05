"""Cluster mode: the controllers of onejob on a Kubernetes API server that is somebody else's.

`manager` composes them, `election` chooses one of several replicas, `preflight` refuses to start
where it could not work, `permissions` is the one list of what is needed there, `probes` answers
whoever looks after the process, and `manifests` writes what installs it.
"""
