"""The annotation `onejob.dev/after`: names of Jobs and the conditions awaited of them."""

from typing import Final

from msgspec import Struct

from onejob.wire.names import subdomain_errors

#: Maximum number of Jobs that one Job may wait for.
MAX_DEPENDENCIES: Final = 100
COMPLETE: Final = "Complete"
#: Either end.
FINISHED: Final = "Finished"
CONDITIONS: Final = (COMPLETE, "Failed", FINISHED)


class InvalidAfter(ValueError):
    """Invalid annotation; the message has the reason."""


class Dependency(Struct, frozen=True):
    """Edge to a Job of the same namespace."""

    name: str
    #: One of CONDITIONS.
    condition: str = COMPLETE


def parse_after(text: str, own_name: str = "") -> tuple[Dependency, ...]:
    """Parse `extract,clean:Finished`. Raises InvalidAfter.

    `own_name` is the name of the Job that has the annotation; "" if it is not known yet.
    """
    items = [item.strip() for item in text.split(",")]
    if len(items) > MAX_DEPENDENCIES:
        raise InvalidAfter(f"names {len(items)} Jobs; the maximum is {MAX_DEPENDENCIES}")
    found: dict[str, Dependency] = {}
    for item in items:
        name, colon, condition = (part.strip() for part in item.partition(":"))
        if not name:
            raise InvalidAfter("has an empty name; expected JOB or JOB:CONDITION, comma-separated")
        if problems := subdomain_errors(name):
            raise InvalidAfter(f"{name[:100]!r} is no name of a Job: {problems[0]}")
        if colon and condition not in CONDITIONS:
            raise InvalidAfter(
                f"{name}:{condition[:50]}: unknown condition; expected {', '.join(CONDITIONS)}"
            )
        if name == own_name:
            raise InvalidAfter("names the Job itself")
        if name in found:
            raise InvalidAfter(f"names {name} twice")
        found[name] = Dependency(name, condition or COMPLETE)
    return tuple(found.values())
