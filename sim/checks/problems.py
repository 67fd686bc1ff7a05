"""Violations found by the checks."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    """A violation, with the name of the check that found it."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"[{self.check}] {self.text}"


@dataclass
class Problems:
    """Violations in the order in which they were found, without duplicates."""

    found: dict[Problem, None] = field(default_factory=dict)

    def add(self, check: str, text: str) -> None:
        self.found.setdefault(Problem(check, text))
