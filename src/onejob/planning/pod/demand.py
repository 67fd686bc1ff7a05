"""Resource demand of a Pod, as integers."""

from collections.abc import Mapping

from msgspec.structs import replace

from onejob.objects.pod_spec import Container, NodePodSpec, QuantityText, Resources
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
    pod_level = spec.resources.requests or spec.resources.limits
    if (
        len(spec.containers) == 1
        and not spec.init_containers
        and not spec.overhead
        and not pod_level
    ):
        return {**_requests(spec.containers[0]), "pods": 1}
    demand = pod_demand(
        [_requests(container) for container in spec.containers],
        [(_requests(container), is_sidecar(container)) for container in spec.init_containers],
        {},
    )
    if pod_level:
        demand |= _pod_requests(spec.resources, demand)
    for name, amount in read_amounts(spec.overhead).items():
        demand[name] = demand.get(name, 0) + amount
    return demand


def with_pod_limits(spec: NodePodSpec, container: Container) -> Container:
    """Return the container with the Pod's limits in place of those that it does not have itself."""
    missing = {
        name: amount
        for name, amount in spec.resources.limits.items()
        if name not in container.resources.limits
    }
    if not missing:
        return container
    limits = {**container.resources.limits, **missing}
    return replace(container, resources=replace(container.resources, limits=limits))


def _pod_requests(resources: Resources, of_containers: Amounts) -> dict[str, int]:
    """Return the Pod-level requests, which replace the containers' sum.

    As upstream defaults them: a limit without a request is the request of a resource that no
    container requests.
    """
    limits = read_amounts(resources.limits)
    implied = {name: amount for name, amount in limits.items() if name not in of_containers}
    return implied | read_amounts(resources.requests)


def _requests(container: Container) -> dict[str, int]:
    """Return the requested amounts; limits stand in for absent requests."""
    resources = container.resources
    if not resources.limits and not resources.requests:
        return {}
    return read_amounts({**resources.limits, **resources.requests})


def _text(name: str, amount: int) -> str:
    """Return an amount with its unit."""
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if name in ("memory", "ephemeral-storage") and amount % 1024 == 0:
        return f"{amount // 1024}Ki"
    return str(amount)
