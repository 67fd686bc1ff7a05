"""Unknown commands: the error, with the equivalent onejob or kubectl command as a suggestion."""

from collections.abc import Iterable
from typing import Final

from onejob.cli.errors import CommandError

HERE: Final = {
    "abort": "stop",
    "cancel": "stop",
    "check": "validate",
    "dashboard": "ui",
    "continue": "resume",
    "down": "delete",
    "end": "stop",
    "events": "get events",
    "history": "cron history",
    "kill": "stop",
    "lint": "validate",
    "list": "get jobs",
    "ls": "get jobs",
    "pause": "suspend",
    "jobs": "get jobs",
    "pods": "get pods",
    "ps": "get runs,jobs",
    "remove": "delete",
    "restart": "rerun",
    "retry": "rerun",
    "rm": "delete",
    "server": "serve",
    "start": "run",
    "status": "why",
    "submit": "create",
    "tail": "logs -f",
    "terminate": "stop",
    "unpause": "resume",
    "up": "serve",
    "watch": "get jobs --watch",
}

OF_KUBECTL: Final = frozenset(
    {
        "annotate", "api-resources", "auth", "cordon", "debug", "diff", "drain",
        "edit", "exec", "explain", "expose", "label", "patch", "port-forward", "proxy", "replace",
        "rollout", "scale", "set", "taint", "uncordon",
    }
)  # fmt: skip


def no_such_command(name: str, whole: str, names: Iterable[str]) -> CommandError:
    """Return the error for an unknown command.

    `whole` is the full text typed, and `name` its last word.
    """
    from difflib import get_close_matches

    meant = suggest_command(name) if name == whole else ""
    if not meant and (close := get_close_matches(name, names, 1)):
        meant = f"did you mean `onejob {whole.removesuffix(name)}{close[0]}`?"
    return CommandError(f"unknown command {whole!r}", meant or "see onejob --help")


def suggest_command(name: str) -> str:
    """Return advice for an unknown command name; "" if there is none."""
    if name in HERE:
        return f"did you mean `onejob {HERE[name]}`?"
    if name not in OF_KUBECTL:
        return ""
    from onejob.cli.places import data_dir

    place = data_dir(None)
    if not place.has_kubeconfig():
        return "use kubectl, which works with onejob serve"
    return f"use kubectl --kubeconfig {place.kubeconfig} {name}"
