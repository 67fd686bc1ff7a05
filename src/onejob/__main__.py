"""`python -m onejob`, and the `onejob` command: what happens before there is a command.

While modules are imported, Ctrl-C ends the process as it ends any program. Python would print at
which line of which module that was.
"""

import signal


def main() -> None:
    # In the background of a script it may be ignored, and stays so.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from onejob.cli.main import main as run_and_leave

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_and_leave()


if __name__ == "__main__":
    main()
