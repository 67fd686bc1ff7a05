"""Singular and plural forms in messages."""


def counted(count: int, noun: str, several: str = "") -> str:
    """Return `1 failure` or `2 failures`.

    `several` is the plural of nouns that do not just take an s.
    """
    return f"{count} {noun if count == 1 else several or noun + 's'}"
