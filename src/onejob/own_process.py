"""Settings of a process that is onejob's alone. A library must leave these to its host."""

import gc

#: Objects made, less those freed, between two looks at the youngest; a busy loop makes as many
#: in a few milliseconds, nearly all of which are freed without anybody looking.
_YOUNG_OBJECTS = 5_000


def settle() -> None:
    """Call once all is built: what there is by now stays, so that the garbage collector need
    not go through it again and again. It would, in pauses of tens of milliseconds."""
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)
