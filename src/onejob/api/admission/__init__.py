"""Admission control: policy of a namespace for its objects, beyond the rules of their kind.

`admission` is the entry point, called by `writing` for every write. Decisions are pure functions in
`planning`.
"""
