"""All functions available to Kubernetes validation rules, by name."""

from collections.abc import Mapping, Sequence

from onejob.cel.functions import FunctionKey, Library, Overload
from onejob.cel.library import (
    authorizer,
    conversions,
    formats,
    lists,
    network,
    operators,
    optionals,
    patches,
    quantity,
    regex,
    semver,
    sets,
    strings,
    times,
    urls,
)


def _all() -> Mapping[FunctionKey, Sequence[Overload]]:
    whole = Library()
    whole.include(
        [
            module.LIBRARY
            for module in (
                operators,
                conversions,
                times,
                strings,
                regex,
                lists,
                sets,
                optionals,
                quantity,
                network,
                urls,
                semver,
                formats,
                authorizer,
                patches,
            )
        ]
    )
    return whole.overloads


FUNCTIONS: Mapping[FunctionKey, Sequence[Overload]] = _all()
