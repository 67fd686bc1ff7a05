"""Planted bugs that each disable one field of the API: the code that acts no longer sees it.

Most fields are read through a view, so every view of a type hides the field: its attribute always
has the default value. Fields that are read from documents have a plant in `plants.py`.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

from onejob.api.schema.schema import load_definitions
from onejob.objects import claims, cronjob, job, pod, pod_spec

_PREFIX = "io.k8s."
_ROOTS: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    ("batch.v1.JobSpec", job.JobSpec),
    ("batch.v1.CronJobSpec", cronjob.CronJobSpec),
    ("core.v1.PodSpec", pod_spec.NodePodSpec),
    ("core.v1.PodSpec", pod.PodSpec),
    ("core.v1.PersistentVolumeClaimSpec", claims.ClaimSpec),
)


@cache
def views() -> Mapping[str, set[type[msgspec.Struct]]]:
    """Return the views of each type of the schema, by the type's short name."""
    types = {_short(name): shape for name, shape in load_definitions()[0].items()}
    found: dict[str, set[type[msgspec.Struct]]] = {}
    waiting = list(_ROOTS)
    while waiting:
        name, view = waiting.pop()
        if view in found.setdefault(name, set()):
            continue
        found[name].add(view)
        properties = types[name].get("properties") or {}
        hints = get_type_hints(view)
        for field in msgspec.structs.fields(view):
            inner = list(_references(properties.get(field.encode_name)))
            for reference in inner:
                waiting += [(reference, each) for each in _structs(hints[field.name])]
    return found


def attributes(type_: str, field: str) -> list[tuple[type[msgspec.Struct], Any]]:
    """Return the attributes of views that hold a field, as views and fields of msgspec."""
    return [
        (view, each)
        for view in views().get(type_, ())
        for each in msgspec.structs.fields(view)
        if each.encode_name == field
    ]


def conceal(undo: ExitStack, type_: str, field: str) -> None:
    """Let all views of a type have the default value of a field. Raises LookupError without one."""
    found = attributes(type_, field)
    if not found:
        raise LookupError(f"no view has {type_}.{field}")
    for view, attribute in found:
        missing = attribute.default is msgspec.NODEFAULT
        default = attribute.default_factory() if missing else attribute.default
        original = getattr(view, attribute.name)
        setattr(view, attribute.name, _constant(default))
        undo.callback(setattr, view, attribute.name, original)


def _constant(value: Any) -> property:
    return property(lambda _: value)


def _short(name: str) -> str:
    return name.removeprefix(_PREFIX).removeprefix("api.")


def _references(shape: Any) -> Iterator[str]:
    if isinstance(shape, Mapping):
        if "$ref" in shape:
            yield _short(shape["$ref"].rpartition("/")[2])
        for value in shape.values():
            yield from _references(value)
    elif isinstance(shape, list):
        for value in shape:
            yield from _references(value)


def _structs(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in get_args(hint):
        yield from _structs(part)
