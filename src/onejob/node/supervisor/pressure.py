"""Which errors are the node's trouble, not the workload's: what ran out will be there again."""

import errno

DISK = "DiskPressure"
MEMORY = "MemoryPressure"
PROCESSES = "PIDPressure"
DESCRIPTORS = "DescriptorPressure"
PRESSURES = frozenset({DISK, MEMORY, PROCESSES, DESCRIPTORS})

_BY_ERRNO = {
    errno.ENOSPC: DISK,
    errno.EDQUOT: DISK,
    errno.ENOMEM: MEMORY,
    errno.EAGAIN: PROCESSES,
    errno.EUSERS: PROCESSES,
    errno.EMFILE: DESCRIPTORS,
    errno.ENFILE: DESCRIPTORS,
}


def pressure_of(error: BaseException | None) -> str:
    """The condition of the node that an error tells of, or what it was raised from; "" if none."""
    while error is not None:
        if isinstance(error, OSError):
            if error.errno == errno.ENOSPC and str(error.strerror).startswith(("unshare", "clone")):
                # How the kernel says that there are too many namespaces.
                return PROCESSES
            return _BY_ERRNO.get(error.errno or 0, "")
        error = error.__cause__
    return ""
