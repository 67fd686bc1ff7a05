"""Change of the limits of a running container by the engine's command `update`."""

import re
from typing import Final

from onejob.node.podman.command import container_name, limit_arguments
from onejob.node.podman.engine import Abilities, Engine
from onejob.node.runtime import AttemptRef
from onejob.objects.pod_spec import Container
from onejob.wire.quantity import parse_quantity

_AMOUNT: Final = re.compile(r"([\d.]+)\s*([KMGT]?)(i?)B", re.IGNORECASE)


def change_problem(container: Container, abilities: Abilities, engine: str) -> str:
    """Return why the limits of a running container cannot be changed; "" if they can."""
    limits = container.resources.limits
    for name, able in (("memory", abilities.memory), ("cpu", abilities.cpus)):
        if name in limits and not able:
            return f"{engine} cannot limit {name} on this machine"
    return ""


async def change_limits(
    engine: Engine, container: Container, ref: AttemptRef, abilities: Abilities
) -> str:
    """Change the limits of a running container; return why that failed, "" if it did not."""
    name = container_name(ref)
    arguments = limit_arguments(container, abilities)
    if "memory" in container.resources.limits:
        limit = parse_quantity(container.resources.limits["memory"]).whole
        in_use = read_bytes(await engine.memory_in_use(name))
        if in_use >= limit:
            # The kernel would end processes of the container.
            return (
                f'cannot decrease memory limits: attempting to set container "{ref.container}" '
                f"memory limit ({limit}) below current usage ({in_use})"
            )
        if engine.is_docker:
            # It refuses a limit above that of memory and swap together, which is twice the limit.
            arguments.append(f"--memory-swap={2 * limit}b")
    answer = await engine.update(name, arguments)
    return answer.problem if answer.code else ""


def read_bytes(text: str) -> int:
    """Return an amount such as `1.5MiB` in bytes; 0 if it has no such form."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return 0
    number, prefix, binary = found.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** (" KMGT".index(prefix.upper() or " ")))
