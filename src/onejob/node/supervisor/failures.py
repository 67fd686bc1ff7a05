"""Failures of a new process to set itself up and execute its program."""


class SetupFailed(Exception):
    """The container could not be started; `reason` is the reason in its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def text_of(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
