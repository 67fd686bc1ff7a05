"""Entry point of `python -m onejob` and the `onejob` command: signal handling during imports.

While modules are imported, Ctrl-C ends the process with the default action of SIGINT. Python's own
handler would print a traceback into an arbitrary module.
"""

import signal


def main() -> None:
    # SIGINT may be ignored, in the background of a script, and stays so.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from onejob.cli.main import main as run_and_leave

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_and_leave()


if __name__ == "__main__":
    main()
