"""The image, and data dirs whose containers must all be gone in the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.podman.support import IMAGE, containers_of, engine, make_image


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
