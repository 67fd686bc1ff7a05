"""Which kinds of node a probe used, so that figures of a simulated node are marked as such."""

from onejob.node.options import RuntimeName

_used: set[str] = set()


def record_node(runtime: RuntimeName) -> RuntimeName:
    """Called wherever a probe starts a node."""
    _used.add(runtime)
    return runtime


def used_nodes() -> frozenset[str]:
    """Those of this process so far."""
    return frozenset(_used)
