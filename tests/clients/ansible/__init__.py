"""Ansible's collection kubernetes.core, of which a second run must change nothing."""
