"""Record of the node runtimes used by a probe, so that figures of a simulated node are labelled."""

_used: set[str] = set()


def record_node(runtime: str) -> str:
    """Record the runtime of a node and return it. Call it wherever a probe starts a node."""
    _used.add(runtime)
    return runtime


def used_nodes() -> frozenset[str]:
    """Return the runtimes used in this process so far."""
    return frozenset(_used)
