"""Decisions about PersistentVolumeClaims: binding, provisioning, reclaiming and scheduling."""
