"""Implementation of `onejob run`.

Starts a local control plane, follows the Jobs, displays their progress and prints a summary.
`session` is the entry point.
"""
