"""What the node should do about a Pod: placement, lifecycle, status, restarts, clearing away.

`lifecycle` is the entry point for a Pod that is bound here.
"""
