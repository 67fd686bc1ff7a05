"""Interface of the provisioner, which makes and deletes the folders of volumes."""

from typing import Protocol


class Provisioner(Protocol):
    """Provisioner of folders on this machine.

    Guarantees: all methods are idempotent. Failures are returned as one line, for an Event; ""
    means success.
    """

    def path_of(self, name: str) -> str:
        """Return the path of a volume's folder."""

    async def make(self, name: str, size: int, promised: int) -> str:
        """Make the folder of a volume; return why that is not possible, or "".

        `size` is the requested capacity in bytes, `promised` that of all existing volumes.
        """

    async def delete(self, name: str) -> str:
        """Delete the folder of a volume with its contents; return why that failed, or ""."""

    async def sweep(self, names: frozenset[str]) -> None:
        """Remove the empty folders of volumes that were never created.

        `names` are those of all existing volumes. A folder with contents is kept, with a warning:
        it may belong to a volume that a restored backup does not contain.
        """
