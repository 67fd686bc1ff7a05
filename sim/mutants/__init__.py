"""Bugs that are planted into the production code, one at a time, to show that they are found.

Each is one of the mistakes that the design guards against. They are planted from outside, so that
production code has no branch for them; one whose target was renamed fails loudly.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from sim.mutants import control_plane, node, policies, rare, store
from sim.mutants.planting import Plant

MUTANTS: Mapping[str, Plant] = {
    **control_plane.MUTANTS,
    **policies.MUTANTS,
    **store.MUTANTS,
    **node.MUTANTS,
    **rare.MUTANTS,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with ExitStack() as undo:
        MUTANTS[name](undo)
        yield
