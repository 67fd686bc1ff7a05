"""Mutation testing of the simulator: bugs planted one at a time, which the checks must detect.

Each is one of the mistakes that the design guards against. They are patched in from outside, so
that production code has no branch for them; a mutant whose target was renamed raises an error.
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
    workflows,
)
from sim.mutants.planting import Plant

#: Mutants by the world that is searched for them.
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
    "workflows": workflows.MUTANTS,
    "resuming": resuming.MUTANTS,
}
MUTANTS: Mapping[str, Plant] = {
    name: plant for planted in BY_WORLD.values() for name, plant in planted.items()
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant the mutant of this name into the production code inside the context."""
    with ExitStack() as undo:
        MUTANTS[name](undo)
        yield
