"""Result type of Pod Security checks, and accessors of a Pod's fields."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

Spec: TypeAlias = Mapping[str, Any]
Annotations: TypeAlias = Mapping[str, str]


class Violation(Struct, frozen=True):
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


Check: TypeAlias = Callable[[Annotations, Spec], Violation | None]


def containers(spec: Spec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and definition of all containers, including ephemeral ones."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            yield container["name"], container


def contexts(spec: Spec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and securityContext of each container."""
    for name, container in containers(spec):
        yield name, container.get("securityContext") or {}


def pod_context(spec: Spec) -> Mapping[str, Any]:
    return spec.get("securityContext") or {}


def is_windows(spec: Spec) -> bool:
    return (spec.get("os") or {}).get("name") == "windows"


def has_user_namespace(spec: Spec) -> bool:
    return spec.get("hostUsers") is False


def quoted(items: Iterable[str]) -> str:
    """Return the items in quotes, separated by commas."""
    return ", ".join(f'"{item}"' for item in items)


def plural(singular: str, several: str, count: int) -> str:
    """Return the form for `count` things."""
    return singular if count == 1 else several


def named(names: list[str], kind: str = "container") -> str:
    """Return `container "a"` or `containers "a", "b"`."""
    return f"{plural(kind, kind + 's', len(names))} {quoted(names)}"


def setters(pod: bool, names: list[str]) -> list[str]:
    """Return the origin of a setting for messages: the Pod, some containers, or both."""
    found = ["pod"] if pod else []
    return [*found, named(names)] if names else found
