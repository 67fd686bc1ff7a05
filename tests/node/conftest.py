"""Podman fixtures: the image, and data dirs that must have no containers left at the end."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.podman.support import IMAGE, containers_of, engine, make_image


@pytest.fixture
def engine_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run one test at a time.

    The engine's own locks make clients of two tests wait for each other, longer than the tests wait
    for their containers.
    """
    base = tmp_path_factory.getbasetemp()
    # Shared by all processes that run tests.
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
    """Yield the data dir of a node; fail the test if a container is left behind."""
    yield tmp_path
    left = containers_of(tmp_path)
    if left:
        engine("rm", "--force", *left)
    assert left == []
