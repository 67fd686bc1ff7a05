"""The command line: one click command per module in `commands`, what they share beside them.

`main` is the entry point. `run` is what `onejob run` does, `clients` where other commands get their
objects from, `display` how results are printed. Nothing imports from here.
"""
