"""Implementation of `onejob run`.

Reads manifests, starts a local control plane, follows the Jobs and prints a summary. `session` is
the entry point; `runs` keeps the records of past runs.
"""
