"""Job strategy: defaults, validation, updates, status, warnings.

`strategy` is the entry point; each other module is one set of pure rules.
"""
