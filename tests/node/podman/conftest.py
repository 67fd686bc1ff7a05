"""The image, and data dirs whose containers must all be gone in the end."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.podman.support import IMAGE, containers_of, engine, make_image


@pytest.fixture(autouse=True)
def engine_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One test at a time: the engine's own locks make clients of two tests wait for each other,
    longer than the tests wait for their containers."""
    base = tmp_path_factory.getbasetemp()
    # Of all processes that run tests, not of this one.
    shared = base.parent if base.name.startswith("popen-") else base
    with open(shared / "podman.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    make_image(tmp_path_factory.mktemp("image") / "root")
    yield IMAGE
    engine("rmi", "--force", IMAGE)


@pytest.fixture
def place(tmp_path: Path, image: str) -> Iterator[Path]:
    """The data dir of a node; the test fails if a container is left behind."""
    yield tmp_path
    left = containers_of(tmp_path)
    if left:
        engine("rm", "--force", *left)
    assert left == []
