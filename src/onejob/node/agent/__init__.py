"""Node agent (kubelet): Pod scheduling, Pod lifecycle and status reporting on one node.

`agent` is the entry point. It drives a runtime through `node.runtime.Runtime` and imports no
particular runtime.
"""
