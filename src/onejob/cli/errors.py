"""User errors that end a command: one line on stderr and an exit code."""

from typing import Final

from onejob.planning.bad_input import BadInput

EXIT_OK: Final = 0
#: A Job failed, or an awaited condition did not occur.
EXIT_FAILED: Final = 1
#: Bad input, no server, nothing started.
EXIT_USAGE: Final = 2
#: `run --timeout` was exceeded; as `timeout` of GNU coreutils.
EXIT_TIMED_OUT: Final = 124
EXIT_INTERRUPTED: Final = 130


class CommandError(BadInput):
    """User error, printed as `error: MESSAGE (NEXT STEP)`. State the problem, then the remedy."""

    def __init__(self, message: str, next_step: str = "", *, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message, next_step)
        self.exit_code = exit_code
