"""Something that a person gave and that cannot be used: what is wrong, and what helps."""


class BadInput(Exception):
    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    @property
    def lines(self) -> list[str]:
        """What to print, each line after `error: `."""
        return [f"{self.message} ({self.next_step})" if self.next_step else self.message]
