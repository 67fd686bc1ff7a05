"""Decisions about allocations, without I/O: where a Pod fits, and which allocations to submit."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from onejob.planning.pod.placement import Amounts

#: Resource name of GPUs in requests.
GPU: Final = "nvidia.com/gpu"
#: Fields of a shape: options of sbatch, and names of annotations.
SELECTORS: Final = ("partition", "account", "qos", "constraint", "gres")


class Shape(Struct, frozen=True):
    """Properties of an allocation that Slurm has to provide; Pods run in allocations of their own
    shape. Empty values are the site's defaults."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""


class Needs(Struct, frozen=True):
    """Requirements of one Pod."""

    shape: Shape
    demand: Amounts
    #: Seconds that it may run, from `activeDeadlineSeconds` or its annotation; 0 if unknown.
    seconds: float = 0.0


class Offer(Struct, frozen=True):
    """An allocation, as far as Pods are concerned."""

    shape: Shape
    free: Amounts
    #: Seconds until its time limit.
    seconds: float


def fits(needs: Needs, offer: Offer) -> bool:
    """Return whether a Pod can start in an allocation now."""
    return (
        needs.shape == offer.shape
        and needs.seconds <= offer.seconds
        and all(
            amount <= offer.free.get(name, 0) for name, amount in needs.demand.items() if amount
        )
    )


def lacking(demand: Amounts, whole: Amounts) -> list[str]:
    """Return the names of resources of which a whole allocation has too little."""
    return [name for name, amount in demand.items() if amount > whole.get(name, 0)]


def minus(free: Amounts, demand: Amounts) -> dict[str, int]:
    return {name: amount - demand.get(name, 0) for name, amount in free.items()}


def shapes_to_submit(
    waiting: Iterable[Needs],
    expected: Sequence[Offer],
    whole: Mapping[Shape, Amounts],
    *,
    seconds: float,
    allowed: int,
) -> list[Shape]:
    """Return the shapes of the allocations to submit for the waiting Pods, at most `allowed`.

    `expected` are the allocations that have room or will have, once they have begun. `whole` is the
    capacity of a new allocation and `seconds` its time limit. Pods that fit no new allocation are
    skipped.
    """
    offers = list(expected)
    new: list[Shape] = []
    for needs in waiting:
        for number, offer in enumerate(offers):
            if fits(needs, offer):
                offers[number] = Offer(offer.shape, minus(offer.free, needs.demand), offer.seconds)
                break
        else:
            fresh = Offer(needs.shape, whole[needs.shape], seconds)
            if len(new) < allowed and fits(needs, fresh):
                new.append(needs.shape)
                offers.append(Offer(fresh.shape, minus(fresh.free, needs.demand), seconds))
    return new


def gpus_in(gres: str) -> int:
    """Return the number of GPUs in a value of `--gres`, such as `gpu:a100:2`."""
    count = 0
    for item in filter(None, gres.split(",")):
        name, _, rest = item.partition(":")
        if name in ("gpu", "gres/gpu"):
            number = rest.rpartition(":")[2].partition("(")[0]
            count += int(number) if number.isdigit() else 1
    return count
