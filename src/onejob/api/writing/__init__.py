"""How a document changes: create, update, patch, apply, delete, and what they share.

`writes` is the entry point. All of it is synchronous up to the point where a write is staged;
what one kind decides differently is in `api.strategies`.
"""
