"""Text on the resource usage of containers, together with their limits. Pure."""

from collections.abc import Mapping
from typing import Any

from onejob.cli.display.quantities import memory_text
from onejob.cli.sources.usage import Usage, total


def container_usage_texts(pod: Mapping[str, Any], usage: Mapping[str, Usage]) -> list[str]:
    """Return a line for each measured container."""
    containers = (*pod["spec"].get("initContainers", ()), *pod["spec"].get("containers", ()))
    return [
        f"container {container['name']} uses {_amounts(usage[container['name']])}"
        f"{_limits(container)}"
        for container in containers
        if container["name"] in usage
    ]


def pod_usage_text(name: str, usage: Mapping[str, Usage]) -> str:
    return f"pod {name} uses {_amounts(total(usage.values()))}"


def _amounts(usage: Usage) -> str:
    return f"{usage.cpu_millicores}m of CPU and {memory_text(usage.memory_bytes)} of memory"


def _limits(container: Mapping[str, Any]) -> str:
    limits = container.get("resources", {}).get("limits", {})
    known = [f"{limits[name]} of {text}" for name, text in _LIMITED.items() if name in limits]
    return f" (limit: {', '.join(known)})" if known else ""


_LIMITED = {"cpu": "CPU", "memory": "memory"}
