"""Cluster mode: the controllers of onejob on an existing Kubernetes API server.

`manager` composes them, `election` elects one of several replicas, `preflight` refuses to start if
prerequisites are missing, `permissions` is the single list of required permissions, `probes` serves
health and metrics, and `manifests` generates the installation.
"""
