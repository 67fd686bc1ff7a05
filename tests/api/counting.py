"""A name that counts how often it is compared: shows what is looked up and what is searched for."""


class Counted(str):
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__eq__(other)

    __hash__ = str.__hash__
