"""Implementation of `onejob run`: read manifests, start a local control plane, follow the Jobs,
print a summary.

`session` is the entry point; `runs` keeps the records of past runs.
"""
