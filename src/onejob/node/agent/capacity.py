"""Capacity of the machine."""

import os

from onejob.planning.pod.placement import Amounts

#: The kubelet's default, and sufficient for upstream's tests.
MAX_PODS = 110
#: Capacity of nodes with simulated Pods, which use no resources.
BOUNDLESS: Amounts = {"cpu": 10**9, "memory": 2**60, "ephemeral-storage": 2**60, "pods": 10**9}


def machine_capacity() -> dict[str, int]:
    """Return the capacity of this machine."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs("/")
    return {
        "cpu": (os.cpu_count() or 1) * 1000,
        "memory": pages * page_bytes,
        "ephemeral-storage": disk.f_blocks * disk.f_frsize,
        "pods": MAX_PODS,
    }
