"""/etc/hosts of a Pod with `hostAliases`: the host's own file, followed by the Pod's entries."""

import os
from collections.abc import Sequence
from pathlib import Path

from onejob.node.supervisor.paths import beneath, folder_of, open_regular
from onejob.objects.pod_spec import HostAlias, NodePod

HOSTS = "/etc/hosts"

#: The kubelet's text, verbatim: programs look for the first line.
_HEADER = b"# Kubernetes-managed hosts file (host network).\n"
_ALIASES = b"\n# Entries added by HostAliases.\n"


def make_hosts_file(pods: Path, pod: NodePod) -> Path:
    """Create the file shared by all containers of the Pod, which may change it. Raises OSError."""
    part = f"{pod.uid}/etc"
    with folder_of(str(pods)) as top, beneath(top, part, make=0o755) as folder:
        try:
            fd = open_regular("hosts", os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=folder)
        except FileExistsError:
            return pods / part / "hosts"
        with open(fd, "wb") as file:
            file.write(_HEADER + _of_host() + _ALIASES + _lines(pod.spec.host_aliases))
            os.fchmod(fd, 0o644)
    return pods / part / "hosts"


def _of_host() -> bytes:
    try:
        return Path(HOSTS).read_bytes()
    except OSError:
        # A host without the file resolves names by other means.
        return b""


def _lines(aliases: Sequence[HostAlias]) -> bytes:
    """Return the lines of the aliases."""
    lines = ("\t".join((alias.ip, *alias.hostnames)) + "\n" for alias in aliases)
    return "".join(lines).encode()
