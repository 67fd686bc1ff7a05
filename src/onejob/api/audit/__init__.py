"""Audit log: requests and their results as lines of `audit.k8s.io/v1` Events.

`recorder` follows a request through its stages; `log_file` writes lines and rotates the file.
Nothing here is imported or runs unless `onejob serve` is configured to keep an audit log.
"""
