"""What is wrong, and which check says so."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    check: str
    text: str

    def __str__(self) -> str:
        return f"[{self.check}] {self.text}"


@dataclass
class Problems:
    """Each is named once, in the order in which they were found."""

    found: dict[Problem, None] = field(default_factory=dict)

    def add(self, check: str, text: str) -> None:
        self.found.setdefault(Problem(check, text))
