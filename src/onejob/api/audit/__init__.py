"""The audit log: who asked for what, and what became of it, as lines of `audit.k8s.io/v1` Events.

`recorder` follows a request through its stages, `log_file` writes lines and rotates the file.
Nothing of this is imported or runs unless `onejob serve` is told to keep an audit log.
"""
