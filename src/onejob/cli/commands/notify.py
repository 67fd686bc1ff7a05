"""`onejob notify`: notification targets."""

from typing import TYPE_CHECKING, Any, TypeVar

import click

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import data_dir_option, output_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from onejob.controllers.notify.config import Target

F = TypeVar("F", bound="Callable[..., Any]")

_EPILOG = """\b
Examples:
  onejob notify list       # targets, their events and pending messages
  onejob notify test ops   # send a test message

Targets are configured in notify.yaml of the data directory, or with onejob serve --notify-config.
Jobs, CronJobs and namespaces select them by annotation:

\b
  kubectl annotate job pi onejob.dev/notify=ops"""

_TEST_EPILOG = """\b
Examples:
  onejob notify test ops
  onejob notify test ops --notify-config /etc/onejob/notify.yaml"""

_LIST_EPILOG = """\b
Examples:
  onejob notify list
  onejob notify list -o json"""


def _config_option(function: F) -> F:
    return click.option(
        "--notify-config",
        metavar="FILE",
        help="Notification targets of the server. [default: notify.yaml in the data directory]",
    )(function)


@click.group(epilog=_EPILOG, short_help="List and test notification targets")
def command() -> None:
    """List and test notification targets."""


@command.command("test", epilog=_TEST_EPILOG, short_help="Send a test message to a target")
@click.argument("target")
@_config_option
@data_dir_option
def test_target(target: str, notify_config: str | None, data_dir: str | None) -> int:
    """Send a test message to a target from this machine. The exit code is 1 if delivery fails."""
    import asyncio

    from onejob.cli.notify_config import require_notify_config
    from onejob.cli.places import data_dir as find_data_dir

    targets = require_notify_config(notify_config, find_data_dir(data_dir)).by_name
    if target not in targets:
        names = ", ".join(sorted(targets)) or "none"
        raise CommandError(f"target {target!r} not found", f"existing targets: {names}")
    asyncio.run(_send(targets[target]))
    print(f"{target}: delivered to {targets[target].place}")
    return 0


async def _send(target: "Target") -> None:
    from onejob.clock import SystemClock
    from onejob.controllers.notify.channels import channel_to
    from onejob.controllers.notify.config import BadNotifyConfig
    from onejob.controllers.notify.delivery import NotDelivered
    from onejob.planning.notify.messages import trial_message

    clock = SystemClock()
    try:
        channel = channel_to(target, clock)
    except BadNotifyConfig as error:
        raise CommandError(str(error)) from None
    try:
        await channel.send(trial_message(target.name, clock.now()))
    except NotDelivered as error:
        raise CommandError(
            f"{target.name}: cannot deliver to {target.place}: {error}", exit_code=EXIT_FAILED
        ) from None
    finally:
        await channel.close()


@command.command("list", epilog=_LIST_EPILOG, short_help="List targets")
@_config_option
@output_option("json")
@data_dir_option
def list_targets(notify_config: str | None, output: str | None, data_dir: str | None) -> int:
    """List targets with their events and the number of pending messages."""
    import msgspec

    from onejob.cli.display.tables import render_table
    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.notify_config import require_notify_config
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.controllers.notify.outbox import FILE, count_waiting

    place = find_data_dir(data_dir)
    place.require_trusted()
    waiting = count_waiting(place.server / FILE)
    targets = require_notify_config(notify_config, place).targets
    if output:
        shown = [
            {
                "name": target.name,
                "kind": target.kind,
                "to": target.place,
                "on": sorted(target.events),
                "waiting": waiting.get(target.name, 0),
            }
            for target in targets
        ]
        print(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode())
        return 0
    rows = [
        [
            *(target.name, target.kind, target.place),
            ",".join(sorted(target.events)),
            str(waiting.get(target.name, 0)),
        ]
        for target in targets
    ]
    headers = ["NAME", "KIND", "TO", "ON", "WAITING"]
    for line in render_table(headers, rows, terminal_of().width):
        print(line)
    return 0
