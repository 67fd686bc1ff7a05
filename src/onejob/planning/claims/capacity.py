"""Whether a claim fits on the disk that holds the provisioned volumes."""

from msgspec import Struct


class Disk(Struct, frozen=True):
    """File system of the provisioned volumes, in bytes."""

    path: str
    free: int
    #: Bytes that the folders of existing volumes occupy.
    used_by_volumes: int


def refusal(requested: int, promised: int, disk: Disk) -> str:
    """Return why a claim gets no volume; "" if it fits.

    `promised` is the capacity of the existing volumes. What these have stored already is not free
    any more, and counts only once.
    """
    left = disk.free - max(promised - disk.used_by_volumes, 0)
    if requested <= left:
        return ""
    return (
        f"the claim requests {_amount(requested)}, but the file system of {disk.path} has room for "
        f"{_amount(max(left, 0))}: {_amount(disk.free)} are free, and existing volumes may still "
        f"use {_amount(max(promised - disk.used_by_volumes, 0))} of them"
    )


def _amount(size: int) -> str:
    """Return a size as a quantity that is easy to read."""
    for shift, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size >= 10 << shift:
            return f"{size >> shift}{unit}"
    return str(size)
