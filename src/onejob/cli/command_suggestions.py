"""Suggestions for commands of other programs: the equivalent onejob or kubectl command."""

from typing import Final

HERE: Final = {
    "check": "validate",
    "dashboard": "ui",
    "down": "delete",
    "events": "get events",
    "history": "cron history",
    "kill": "delete",
    "lint": "validate",
    "list": "get jobs",
    "ls": "get jobs",
    "pause": "suspend",
    "ps": "get jobs",
    "remove": "delete",
    "restart": "rerun",
    "retry": "rerun",
    "rm": "delete",
    "server": "serve",
    "start": "run",
    "status": "why",
    "stop": "suspend",
    "submit": "create",
    "unpause": "resume",
    "up": "serve",
    "watch": "get jobs --watch",
}

OF_KUBECTL: Final = frozenset(
    {
        "annotate", "api-resources", "attach", "auth", "cordon", "cp", "debug", "diff", "drain",
        "edit", "exec", "explain", "expose", "label", "patch", "port-forward", "proxy", "replace",
        "rollout", "scale", "set", "taint", "uncordon",
    }
)  # fmt: skip


def suggest_command(name: str) -> str:
    """Return advice for an unknown command name; "" if there is none."""
    if name in HERE:
        return f"did you mean `onejob {HERE[name]}`?"
    if name not in OF_KUBECTL:
        return ""
    from onejob.cli.places import data_dir

    place = data_dir(None)
    if not place.has_kubeconfig():
        return "kubectl has it, and works with onejob serve"
    return f"kubectl has it: kubectl --kubeconfig {place.kubeconfig} {name}"
