"""String that counts its comparisons, to distinguish lookups from linear searches in tests."""


class Counted(str):
    """String that counts all comparisons, of all instances together."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__eq__(other)

    __hash__ = str.__hash__
