"""Notification configuration for `serve` and `notify`."""

from pathlib import Path
from typing import TYPE_CHECKING

from onejob.cli.errors import CommandError
from onejob.cli.places import DataDir

if TYPE_CHECKING:
    from onejob.controllers.notify.config import NotifyConfig

_CONFIG_FILE = "notify.yaml"


def find_notify_config(chosen: str | None, place: DataDir) -> "NotifyConfig | None":
    """Load the chosen file, else the data dir's; None if there is neither. Raises CommandError.

    The import is local, because most servers have no notifications.
    """
    path = Path(chosen) if chosen else place.path / _CONFIG_FILE
    if not chosen and not path.exists():
        return None
    from onejob.controllers.notify.config import BadNotifyConfig, load_config

    try:
        return load_config(path)
    except BadNotifyConfig as error:
        raise CommandError(str(error), "see docs/how-to/notifications.md") from None


def require_notify_config(chosen: str | None, place: DataDir) -> "NotifyConfig":
    config = find_notify_config(chosen, place)
    if config is None:
        raise CommandError(
            f"{place.path / _CONFIG_FILE} does not exist",
            "see docs/how-to/notifications.md, or select another file with --notify-config",
        )
    return config
