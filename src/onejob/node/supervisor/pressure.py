"""Classification of errors caused by resource shortages of the node, which are temporary."""

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
    """Return the node condition that an error, or one of its causes, indicates; "" if none."""
    while error is not None:
        if isinstance(error, OSError):
            if error.errno == errno.ENOSPC and str(error.strerror).startswith(("unshare", "clone")):
                # ENOSPC from these calls means that the limit on namespaces is reached.
                return PROCESSES
            return _BY_ERRNO.get(error.errno or 0, "")
        error = error.__cause__
    return ""
