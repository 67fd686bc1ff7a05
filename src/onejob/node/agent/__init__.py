"""The node agent: which Pods run here, what state they are in, and what is written of them.

`agent` is the entry point. It drives a runtime through `node.runtime` and knows none of them.
"""
