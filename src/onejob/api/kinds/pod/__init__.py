"""Pod strategy, and the rules for Pod templates of other kinds.

`strategy` is the entry point; each other module is one set of pure rules.
"""
