"""What a namespace says about objects that come into it, beyond the rules of their kind.

`admission` is the entry point: `writing` asks it about every write. Decisions are in `planning`.
"""
