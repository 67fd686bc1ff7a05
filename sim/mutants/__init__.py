"""Bugs that are planted into the production code, one at a time, to show that they are found.

Each is one of the mistakes that the design guards against. They are planted from outside, so that
production code has no branch for them; one whose target was renamed fails loudly.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from sim.mutants import (
    control_plane,
    http_client,
    lease,
    mirror,
    node,
    ownership,
    policies,
    queues,
    rare,
    resuming,
    store,
    watching,
)
from sim.mutants.planting import Plant

#: By the world that they are searched for in.
BY_WORLD: Mapping[str, Mapping[str, Plant]] = {
    "plane": {
        **control_plane.MUTANTS,
        **policies.MUTANTS,
        **store.MUTANTS,
        **node.MUTANTS,
        **rare.MUTANTS,
    },
    "clients": {**http_client.MUTANTS, **watching.MUTANTS},
    "cluster": lease.MUTANTS,
    "mirroring": mirror.MUTANTS,
    "racing": {**ownership.MUTANTS, **queues.MUTANTS},
    "resuming": resuming.MUTANTS,
}
MUTANTS: Mapping[str, Plant] = {
    name: plant for planted in BY_WORLD.values() for name, plant in planted.items()
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with ExitStack() as undo:
        MUTANTS[name](undo)
        yield
