"""Manifests: reading them from files, URLs and commands, checking them, sending them."""
