"""Proof that the tests named in docs/reference/fields.toml exercise their fields.

The effect of each acting field is disabled, one field at a time, and its named tests must fail.
"""
