"""Numbers of things in sentences."""


def counted(count: int, noun: str, several: str = "") -> str:
    """`1 failure`, `2 failures`; `several` is for nouns that do not just take an s."""
    return f"{count} {noun if count == 1 else several or noun + 's'}"
