"""Write path of the API server: create, update, patch, apply and delete.

`writes` is the entry point. The whole path is synchronous up to the point where a write is staged.
Rules that differ between kinds are in `api.kinds`.
"""
