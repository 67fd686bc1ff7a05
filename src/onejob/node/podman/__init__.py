"""Podman runtime: containers of Podman or Docker.

`runtime` is the entry point; `command` and `engine` are the only modules that depend on the
engine's command line.
"""
