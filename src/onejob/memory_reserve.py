"""Reserve of address space for the time after an allocation has failed.

Allocations fail under a limit of address space (RLIMIT_AS) and where the kernel does not overcommit
memory. Large ones, such as a request's body, fail first. The reserve is given up then, so that the
small ones that follow succeed: those of error responses, and of callbacks whose work cannot be
repeated.

Only for a process of onejob's own. Concurrency: used by the event loop's thread only.
"""

import mmap
from typing import Final

#: Takes address space, but no memory: its pages are never touched.
_BYTES: Final = 16 * 1024 * 1024


class MemoryReserve:
    def __init__(self) -> None:
        self._wanted = False
        self._held: mmap.mmap | None = None

    def hold(self) -> None:
        """Allocate the reserve, from now on again after each time it was spent."""
        self._wanted = True
        self.restore()

    def restore(self) -> None:
        """Allocate a reserve that was spent, if possible."""
        if self._wanted and self._held is None:
            try:
                self._held = mmap.mmap(-1, _BYTES)
            except (OSError, MemoryError):
                return

    def spend(self) -> None:
        """Give up the reserve, after an allocation has failed."""
        if self._held is not None:
            self._held.close()
            self._held = None


#: The address space is the process's, and so is its reserve.
memory_reserve: Final = MemoryReserve()
