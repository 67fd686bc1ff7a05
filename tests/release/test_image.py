"""Images for `serve` and `controller`, built without network from a base of this machine."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.node.podman.support import NEEDS_PODMAN, OPTIONS, engine
from tests.release.base_image import make_base_image
from tests.release.support import ROOT

WHEELS = ROOT / ".venv" / "wheels"
pytestmark = [
    *NEEDS_PODMAN,
    pytest.mark.nightly,
    pytest.mark.skipif(not (WHEELS / ".ready").exists(), reason="no wheels: make dist"),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name = f"registry.invalid/onejob-base:{os.getpid()}"
    make_base_image(tmp_path_factory.mktemp("base") / "root", name)
    yield name
    engine("rmi", "--force", name)


def build(base: str, target: str) -> str:
    image = f"registry.invalid/onejob-{target}:{os.getpid()}"
    engine(
        "build", *OPTIONS, "--pull=never", "--layers=false", "--volume", f"{WHEELS}:/locked:ro",
        "--build-arg", f"PYTHON={base}", "--target", target, "--tag", image, str(ROOT),
    )  # fmt: skip
    return image


def in_container(image: str, *words: str) -> str:
    return engine("run", "--rm", *OPTIONS, image, *words)


def test_image_of_server_serves_and_runs_a_job(base: str) -> None:
    image = build(base, "serve")
    assert "] hi" in in_container(image, "run", "--", "echo", "hi")
    name = f"onejob-serve-{os.getpid()}"
    engine("run", "--detach", "--rm", "--name", name, *OPTIONS, image)
    try:
        tool = ("exec", name, "/onejob/bin/onejob")
        wait_for_server(name)
        engine(*tool, "create", "job", "one", "--", "echo", "served")
        engine(*tool, "wait", "job/one", "--timeout", "60s")
        assert "served" in engine(*tool, "logs", "job/one")
    finally:
        engine("rm", "--force", "--time", "5", name)
        engine("rmi", "--force", image)


def test_image_of_controller_starts_the_controller(base: str) -> None:
    image = build(base, "controller")
    try:
        assert "Usage: onejob controller" in in_container(image, "controller", "--help")
        command = engine("image", "inspect", image, "--format", "{{json .Config.Cmd}}")
        assert command.strip() == '["controller"]'
    finally:
        engine("rmi", "--force", image)


def wait_for_server(name: str) -> None:
    """Wait for the line with the address of the server."""
    with subprocess.Popen(
        ["podman", "logs", "--follow", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as logs:
        assert logs.stdout is not None
        for line in logs.stdout:
            if b"serves Kubernetes API" in line:
                break
        else:
            pytest.fail("the server ended")
        logs.kill()
