"""Resource demand of a Pod, as integers."""

from collections.abc import Mapping

from onejob.objects.pod_spec import Container, NodePodSpec, QuantityText
from onejob.planning.pod.lifecycle import is_sidecar
from onejob.planning.pod.placement import Amounts, pod_demand
from onejob.wire.quantity import InvalidQuantity, parse_quantity


def read_amounts(quantities: Mapping[str, QuantityText]) -> dict[str, int]:
    """Parse quantities: CPU in millicores, everything else in units.

    Raises InvalidQuantity, naming the resource.
    """
    amounts = {}
    for name, text in quantities.items():
        try:
            quantity = parse_quantity(text)
        except InvalidQuantity as error:
            raise InvalidQuantity(f"{name}: {error}") from error
        amounts[name] = quantity.milli if name == "cpu" else quantity.whole
    return amounts


def write_amounts(amounts: Amounts) -> dict[str, str]:
    return {name: _text(name, amount) for name, amount in amounts.items()}


def demand_of(spec: NodePodSpec) -> dict[str, int]:
    """Return the scheduling demand of a Pod, including one of "pods". Raises InvalidQuantity."""
    if len(spec.containers) == 1 and not spec.init_containers and not spec.overhead:
        return {**_requests(spec.containers[0]), "pods": 1}
    return pod_demand(
        [_requests(container) for container in spec.containers],
        [(_requests(container), is_sidecar(container)) for container in spec.init_containers],
        read_amounts(spec.overhead),
    )


def _requests(container: Container) -> dict[str, int]:
    resources = container.resources
    if not resources.limits and not resources.requests:
        return {}
    return read_amounts({**resources.limits, **resources.requests})


def _text(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if name in ("memory", "ephemeral-storage") and amount % 1024 == 0:
        return f"{amount // 1024}Ki"
    return str(amount)
