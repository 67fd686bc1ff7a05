"""Command line: one click command per module in `commands`, with shared code in the other modules.

`main` is the entry point and imports a command only when it is called. `run` implements `onejob
run`; `reports` answers the commands that read, from the objects that `sources` gives access to, as
text that `display` formats. No other package imports this one.
"""
