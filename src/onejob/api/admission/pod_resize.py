"""PodResizeValidator: refuse a resize that can never fit the Pod's node."""

from typing import Any

import msgspec

from onejob.objects.meta import Key
from onejob.planning.quota.amounts import ZERO, pod_requests, read_amounts
from onejob.store.base import Store

_OS_LABEL = "kubernetes.io/os"


class Refusal(msgspec.Struct, frozen=True):
    message: str
    #: Type of the cause in the details of the error; "" for none.
    cause: str = ""


def refusal_by_node(store: Store, name: str, spec: dict[str, Any]) -> Refusal | None:
    """Return why the node cannot run a Pod with this spec, however empty it is; None if it can.

    The messages are upstream's.
    """
    stored = store.newest(Key("nodes", "", name))
    if stored is None:
        return Refusal(f'node "{name}" not found')
    node = msgspec.json.decode(stored.value)
    system = (node["metadata"].get("labels") or {}).get(_OS_LABEL, "linux")
    if system != "linux":
        what = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
        return Refusal(what, "UnsupportedPlatform")
    allocatable = read_amounts((node.get("status") or {}).get("allocatable"))
    requests = pod_requests(spec, overhead=True)
    said = [
        f"{resource}, requested: {-(-wanted // unit)}, allocatable: {-(-most // unit)}"
        for resource, unit in (("cpu", 10**6), ("memory", 10**9))
        if (wanted := requests.get(resource, ZERO).nanos)
        > (most := allocatable.get(resource, ZERO).nanos)
    ]
    if not said:
        return None
    text = f"node didn't have enough allocatable resources: {'; '.join(said)}"
    return Refusal(text, "NodeCapacity")
