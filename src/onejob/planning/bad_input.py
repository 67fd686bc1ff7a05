"""Error for invalid user input: the problem, and a hint how to fix it."""


class BadInput(Exception):
    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    @property
    def lines(self) -> list[str]:
        """Lines to print, each after `error: `."""
        return [f"{self.message} ({self.next_step})" if self.next_step else self.message]
