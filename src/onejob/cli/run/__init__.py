"""What `onejob run` does: read manifests, start a control plane here, follow the Jobs, sum up.

`session` is the entry point. Records of runs are kept by `runs`.
"""
