"""The runtime whose containers are podman's or docker's.

`runtime` is the entry point; `command` and `engine` are the only modules that know the engine's
command line.
"""
