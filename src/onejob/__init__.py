"""onejob: Kubernetes Jobs without the cluster."""

__version__ = "0.1.0"
