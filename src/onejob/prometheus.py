"""Prometheus metric types and text format. `onejob.metrics` declares the metrics.

Labels are keyword arguments, and their names and types come from a subclass of `Labels`, so that
mypy rejects a wrong label. No client library is used: importing one costs more time and memory than
the rest of an idle server's API (docs/decisions/0002-own-metrics.md).
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, ClassVar, Generic, ParamSpec, TypeVar, cast

from msgspec import Struct

#: Label values in the order of the label names; of a single label the value itself.
Key = str | tuple[str, ...]


class Labels(Struct, frozen=True):
    """Label set. Fields are the label names; subclasses are declared with `kw_only=True`."""


class NoLabels(Labels, frozen=True):
    """Labels of a metric with a single series."""

    # Without it, mypy takes the signature to be (*args, **kwargs).
    if TYPE_CHECKING:

        def __init__(self) -> None: ...


P = ParamSpec("P")
L = TypeVar("L", bound=Labels)


class Metric(ABC, Generic[P, L]):
    """Metric with the label set `L`, whose fields are the keyword arguments `P`."""

    type: ClassVar[str]

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Callable[P, L],
        *,
        aliases: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        """`aliases` are further names of the metric, from older proposals.

        `renamed` has the label values that differ under the aliases.
        """
        self.name = name
        self.help_text = help_text
        self.label_set = cast("type[Labels]", labels)
        self.label_names = self.label_set.__struct_fields__
        self.aliases = aliases
        self.renamed = renamed or {}
        # For one label these return its bare value, not a tuple; both run without a Python frame.
        self._key: Callable[[Mapping[str, object]], Key] = (
            itemgetter(*self.label_names) if self.label_names else tuple
        )
        self._key_of: Callable[[L], Key] = (
            attrgetter(*self.label_names) if self.label_names else lambda labels: ()
        )

    def lines(self) -> Iterator[str]:
        """Yield the lines of this metric in Prometheus' text format."""
        for name in (self.name, *self.aliases):
            yield f"# HELP {name} {self.help_text}"
            yield f"# TYPE {name} {self.type}"
            yield from self._samples(name)

    @abstractmethod
    def _samples(self, name: str) -> Iterator[str]:
        """Yield the lines of all series under this name."""

    def _label_values(self, key: Key) -> tuple[str, ...]:
        return (key,) if isinstance(key, str) else key


class Series:
    """Value of a counter or gauge for one set of label values."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0) -> None:
        self.value = value


class _Values(Metric[P, L]):
    """Metric with one number for each set of label values."""

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Callable[P, L],
        *,
        aliases: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
        preset: Iterable[L] = (),
    ) -> None:
        """`preset` are label sets that are exposed as 0 before the first increment.

        Prometheus sees no increase in a series that begins with 1, so that an alert would miss the
        first failure.
        """
        super().__init__(name, help_text, labels, aliases=aliases, renamed=renamed)
        keys = map(self._key_of, preset) if self.label_names else [()]
        self._series: dict[Key, Series] = {key: Series() for key in keys}
        self._reader: Callable[[], Mapping[Key, float]] | None = None

    def series(self, *args: P.args, **labels: P.kwargs) -> Series:
        """Return the series with these labels, for very frequent updates; exposed from now on."""
        key = self._key(labels)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series()
        return series

    def add(self, amount: float, /, *args: P.args, **labels: P.kwargs) -> None:
        key = self._key(labels)
        try:
            self._series[key].value += amount
        except KeyError:
            self._series[key] = Series(amount)

    def read(self: "_Values[[], NoLabels]", reader: Callable[[], float]) -> None:
        """Call `reader` for the value at each scrape."""
        self._reader = lambda: {(): reader()}

    def read_each(self, reader: Callable[[], Mapping[L, float]]) -> None:
        """Call `reader` for the values at each scrape."""
        self._reader = lambda: {self._key_of(one): value for one, value in reader().items()}

    def value(self, *args: P.args, **labels: P.kwargs) -> float:
        """Return one value, or 0 if there is none. For tests and `bench`."""
        return self._values().get(self._key(labels), 0)

    def _values(self) -> Mapping[Key, float]:
        if self._reader is not None:
            return self._reader()
        return {key: series.value for key, series in self._series.items()}

    def _samples(self, name: str) -> Iterator[str]:
        renamed = {} if name == self.name else self.renamed
        for key, value in sorted(self._values().items()):
            shown = [renamed.get(label, label) for label in self._label_values(key)]
            yield f"{name}{_render(self.label_names, shown)} {_number(value)}"


class Counter(_Values[P, L]):
    type = "counter"

    def inc(self, *args: P.args, **labels: P.kwargs) -> None:
        key = self._key(labels)
        try:
            self._series[key].value += 1
        except KeyError:
            self._series[key] = Series(1)

    def count(self, labels: L, amount: float) -> None:
        """Add to the series of a label set, such as one returned by a planner."""
        key = self._key_of(labels)
        try:
            self._series[key].value += amount
        except KeyError:
            self._series[key] = Series(amount)


class Gauge(_Values[P, L]):
    type = "gauge"

    def set(self, value: float, /, *args: P.args, **labels: P.kwargs) -> None:
        key = self._key(labels)
        try:
            self._series[key].value = value
        except KeyError:
            self._series[key] = Series(value)

    def drop(self, *args: P.args, **labels: P.kwargs) -> None:
        """Remove the series of an object that no longer exists."""
        self._series.pop(self._key(labels), None)


class _Distribution(Struct):
    """Observations of a histogram for one set of label values."""

    #: Number of observations in each bucket, the last one without a bound.
    counts: list[int]
    total: float = 0.0


class Histogram(Metric[P, L]):
    type = "histogram"

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Callable[P, L],
        buckets: Sequence[float],
        *,
        aliases: Sequence[str] = (),
    ) -> None:
        super().__init__(name, help_text, labels, aliases=aliases)
        self.buckets = buckets
        self._distributions: dict[Key, _Distribution] = {}

    def observe(self, value: float, /, *args: P.args, **labels: P.kwargs) -> None:
        key = self._key(labels)
        distribution = self._distributions.get(key)
        if distribution is None:
            empty = [0] * (len(self.buckets) + 1)
            distribution = self._distributions[key] = _Distribution(empty)
        distribution.counts[bisect_left(self.buckets, value)] += 1
        distribution.total += value

    def value(self, *args: P.args, **labels: P.kwargs) -> int:
        """Return the number of observations. For tests and `bench`."""
        distribution = self._distributions.get(self._key(labels))
        return sum(distribution.counts) if distribution else 0

    def _samples(self, name: str) -> Iterator[str]:
        for key, distribution in sorted(self._distributions.items()):
            values, seen = self._label_values(key), 0
            for bound, count in zip((*self.buckets, None), distribution.counts, strict=True):
                seen += count
                limit = "+Inf" if bound is None else _number(bound)
                tags = _render((*self.label_names, "le"), (*values, limit))
                yield f"{name}_bucket{tags} {seen}"
            labels = _render(self.label_names, values)
            yield f"{name}_sum{labels} {_number(distribution.total)}"
            yield f"{name}_count{labels} {seen}"


def doubling(first: float, count: int) -> tuple[float, ...]:
    """Return the bounds of `count` buckets, each twice the one before."""
    return tuple(first * 2**power for power in range(count))


def _render(names: Iterable[str], values: Iterable[str]) -> str:
    pairs = ",".join(
        f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)
    )
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
