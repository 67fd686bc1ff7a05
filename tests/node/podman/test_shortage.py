"""Programs of the engine that cannot be started; no engine is needed."""

from pathlib import Path

import msgspec
import pytest

from onejob.node.podman.engine import Engine
from onejob.node.runtime import AttemptRef, RuntimeUnavailable
from onejob.objects.pod_spec import read_node_pod
from tests.node.podman.support import podman_runtime
from tests.node.support import a_pod


async def test_guard_that_cannot_be_started_makes_the_runtime_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(("true",), tmp_path / "engine.lock", "mark=1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeUnavailable, match="cannot be started") as error:
        await engine.guard()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", ["true", "a\0b"])
async def test_session_ends_with_the_error_of_a_client_that_cannot_be_started(
    tmp_path: Path, command: str
) -> None:
    runtime = podman_runtime(tmp_path, engine=(str(tmp_path / "no-such-client"),))
    pod = read_node_pod(msgspec.json.encode(a_pod("p", "true")))
    session = await runtime.open_session(
        pod, AttemptRef("u-1", "c", 0), [command], stdin=False, tty=False
    )
    try:
        finished = await session.finished()
    finally:
        await session.close()
    assert finished.code == -1
    assert finished.message
