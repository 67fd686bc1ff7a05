"""`make managers`: build the managers, then run the tests of this folder with them."""

import sys

import pytest

from tests.managers.building import MANAGERS, CannotBuild, NoGo, build


def main() -> int:
    try:
        for manager in MANAGERS:
            build(manager, _say)
    except NoGo as error:
        _say(f"skipped: {error}")
        return 0
    except CannotBuild as error:
        _say(str(error))
        return 1
    return pytest.main(["-m", "managers", "-v", "-p", "no:cacheprovider", "tests/managers"])


def _say(text: str) -> None:
    print(f"managers: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
