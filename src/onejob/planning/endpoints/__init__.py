"""Addresses of Services: which Pods are behind a Service, at which ports."""
