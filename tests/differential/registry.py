"""Registry of all scenarios, by name."""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from functools import cache

from tests.differential.side import Side

Scenario = Callable[[Side], Awaitable[None]]

_found: dict[str, Scenario] = {}


def scenario(body: Scenario) -> Scenario:
    """Register a scenario as AREA.NAME, after its module and function."""
    name = f"{body.__module__.rpartition('.')[2]}.{body.__name__}"
    assert name not in _found, f"{name} is there twice"
    _found[name] = body
    return body


@cache
def scenarios() -> Mapping[str, Scenario]:
    from tests.differential import scenarios as package

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(_found.items()))


def area(name: str) -> str:
    return name.partition(".")[0]


def namespace(name: str) -> str:
    """Return the scenario's own namespace, the same on both sides."""
    return name.replace(".", "-").replace("_", "-")[:63].rstrip("-")
