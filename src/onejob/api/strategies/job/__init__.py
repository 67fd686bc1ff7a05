"""What Jobs decide about their documents: defaults, validation, updates, status, warnings.

`strategy` is the entry point; the other modules hold one set of rules each and are pure.
"""
