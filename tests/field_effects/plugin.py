"""pytest plugin that disables the field named by `ONEJOB_DISABLED_FIELD` for the whole run."""

import os
from contextlib import ExitStack

from tests.field_effects.plants import disable


def pytest_configure() -> None:
    disable(ExitStack(), *os.environ["ONEJOB_DISABLED_FIELD"].rsplit(".", 1))
