"""Command line: one click command per module in `commands`, with shared code in the other modules.

`main` is the entry point. `run` implements `onejob run`, `clients` gives other commands access to
objects, `display` prints results. No other package imports this one.
"""
