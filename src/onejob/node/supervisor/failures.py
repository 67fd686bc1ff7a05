"""What a new process reports when it cannot become the program it was to be."""


class SetupFailed(Exception):
    """The container could not be brought up; `reason` is what its status will say."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def text_of(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
