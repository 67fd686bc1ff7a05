"""User namespaces of Pods with `hostUsers: false` (gate UserNamespacesSupport).

All containers of a Pod use one range of host IDs, because they share volumes. The range follows
from the Pod's UID, so it is the same after a restart of the server; two Pods get the same one with
a probability of 1 in 30,000.

Volumes are mounted with the engine's option `idmap`, which keeps the owners of files. runc before
1.2 ignores it: files of the host's users then belong to `nobody` inside.
"""

import zlib
from typing import Final

from onejob.node.setup.environment import ConfigProblem
from onejob.objects.pod_spec import NodePod

#: Host IDs of one Pod, as in the kubelet.
RANGE: Final = 65536
#: Ranges above the IDs of the host's own users; all IDs are below 2**31.
_RANGES: Final = 30_000
_FIRST: Final = 16


def first_host_id(uid: str) -> int:
    """Return the host ID to which ID 0 of the Pod's containers is mapped."""
    return (_FIRST + zlib.crc32(uid.encode()) % _RANGES) * RANGE


def user_namespace_arguments(pod: NodePod, *, is_docker: bool, rootless: bool) -> list[str]:
    """Return the engine's arguments for the Pod's user namespace. Raises ConfigProblem."""
    if pod.spec.host_users:
        return []
    if is_docker:
        raise ConfigProblem("hostUsers: docker has one user namespace for all containers")
    if rootless:
        # The engine of an unprivileged user runs every container in a user namespace.
        return []
    first = first_host_id(pod.uid)
    return [f"--uidmap=0:{first}:{RANGE}", f"--gidmap=0:{first}:{RANGE}"]
