"""`--set NAME=VALUE` options of commands that rerun a Job or CronJob."""

from collections.abc import Sequence

from onejob.cli.errors import CommandError


def parse_settings(items: Sequence[str]) -> dict[str, str]:
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise CommandError(f"--set {item}: expected NAME=VALUE")
        found[name] = value
    return found
