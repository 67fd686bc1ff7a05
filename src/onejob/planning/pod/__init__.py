"""Pod handling on the node: placement, lifecycle, status, restarts and garbage collection.

`lifecycle` is the entry point for a Pod that is bound to this node.
"""
