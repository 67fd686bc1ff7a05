"""onejob: Kubernetes Jobs without the cluster."""

__version__ = "0.2.0"
