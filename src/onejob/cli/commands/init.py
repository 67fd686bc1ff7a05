"""`onejob init`: commented starter manifests."""

from collections.abc import Mapping
from typing import Final

import click

from onejob.cli.errors import CommandError

_EPILOG = """\b
Examples:
  onejob init                    # job.yaml in this directory
  onejob init cronjob
  onejob init sweep -o grid.yaml
  onejob init job -o -           # print it"""

#: Starter -> kind that it needs. A starter is offered once its kind is served.
STARTERS: Final[Mapping[str, str]] = {
    "job": "Job", "cronjob": "CronJob", "workflow": "Workflow", "sweep": "Job",
}  # fmt: skip


@click.command(epilog=_EPILOG, short_help="Write a starter manifest")
@click.argument("what", default="job", metavar="[job|cronjob|workflow|sweep]")
@click.option(
    "-o", "--output", metavar="FILE", help="File to write; - prints. [default: KIND.yaml]"
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(what: str, output: str | None, force: bool) -> int:
    """Write a commented manifest to start from."""
    offered = served_starters()
    if what not in offered:
        raise CommandError(f"no starter for {what!r}", f"choose one of {', '.join(offered)}")
    text = starter(what)
    if output == "-":
        print(text, end="")
        return 0
    target = output or f"{what}.yaml"
    try:
        with open(target, "w" if force else "x") as file:
            file.write(text)
    except FileExistsError:
        raise CommandError(f"{target} exists", "use --force, or -o FILE for another name") from None
    # A CronJob needs a server.
    following = "validate" if what == "cronjob" else "run"
    print(f"{target} written (next: onejob {following} {target})")
    return 0


def served_starters() -> list[str]:
    from onejob.wire.kinds import KINDS

    served = {kind.kind for kind in KINDS}
    return [name for name, kind in STARTERS.items() if kind in served]


def starter(name: str) -> str:
    from importlib.resources import files

    return (files("onejob.cli") / "starters" / f"{name}.yaml").read_text()
