"""Containers after a killed server: they live on, are found again, and no attempt is repeated."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onejob.client.base import Delete
from onejob.node.podman.records import ATTEMPT, CONTAINER, DATA_DIR, POD_UID
from onejob.objects.meta import PODS, Key
from tests.node.podman.images_support import ABSENT, waits_for
from tests.node.podman.support import (
    ENGINE,
    IMAGE,
    NEEDS_PODMAN,
    OPTIONS,
    a_podman_node,
    containers_of,
    engine,
    in_image,
    script,
)
from tests.node.support import Document, an_api, condition, the_container, with_spec

pytestmark = NEEDS_PODMAN

#: Every start of a container appends a line.
COUNTED = "echo started >> /shared/starts; "
UNTIL_GO = "while ! test -e /shared/go; do sleep 0.05; done; "


def sharing(place: Path, text: str, **rest: Any) -> Document:
    """Return a Pod with a folder of the test at /shared."""
    shared = place / "shared"
    shared.mkdir(exist_ok=True)
    pod = script(text, volumeMounts=[{"name": "shared", "mountPath": "/shared"}], **rest)
    return with_spec(pod, volumes=[{"name": "shared", "hostPath": {"path": str(shared)}}])


@contextmanager
def a_doomed_server(
    place: Path, pod: Document, *more: str, engine: str = shlex.join(ENGINE)
) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "ONEJOB_TEST_IMAGE": IMAGE}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.node.podman.doomed_server", str(place), engine, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(pod) + "\n")
        server.stdin.flush()
        assert server.stdout.readline() == "ready\n"
        try:
            yield server
        finally:
            server.kill()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - no event for other processes
            await asyncio.sleep(0.02)


def begun(place: Path) -> bool:
    return (place / "shared" / "starts").exists()


def starts(place: Path) -> int:
    return len((place / "shared" / "starts").read_text().splitlines())


def states_of(place: Path) -> list[str]:
    names = containers_of(place)
    return engine("inspect", "--format", "{{.State.Status}}", *names).split() if names else []


async def test_a_container_outlives_a_killed_server_and_is_adopted(place: Path) -> None:
    pod = sharing(place, COUNTED + "echo before; " + UNTIL_GO + "echo after; exit 5")
    with a_doomed_server(place, pod) as server:
        await until(lambda: begun(place))
        server.kill()
        server.wait()
    assert states_of(place) == ["running"]
    async with a_podman_node(place) as node:
        running = await node.until("p", lambda p: p["status"].get("phase") == "Running")
        assert the_container(running)["restartCount"] == 0
        (place / "shared" / "go").touch()
        ended = await node.finished("p")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 5
        assert await node.output("p") == "before\nafter\n"
    assert starts(place) == 1


async def test_the_exit_and_the_log_of_a_container_that_ended_unwatched_are_recovered(
    place: Path,
) -> None:
    pod = sharing(
        place,
        COUNTED + UNTIL_GO + "echo unheard; echo last words > /dev/termination-log; exit 5",
    )
    with a_doomed_server(place, pod) as server:
        await until(lambda: begun(place))
        server.kill()
        server.wait()
    (place / "shared" / "go").touch()
    await until(lambda: states_of(place) == ["exited"])
    async with a_podman_node(place) as node:
        ended = await node.finished("p")
        state = the_container(ended)["state"]["terminated"]
        assert (state["exitCode"], state["message"]) == (5, "last words\n")
        assert condition(ended, "DisruptionTarget") is None
        assert await node.output("p") == "unheard\n"
    assert starts(place) == 1


async def test_a_server_killed_while_the_engine_starts_a_container_does_not_start_another(
    place: Path,
) -> None:
    slow = place / f"{os.path.basename(ENGINE[0])}-but-slow"
    pause = f'if test "$1" = run; then touch {place}/asked; sleep 1; fi'
    slow.write_text(f'#!/bin/sh\n{pause}\nexec {shlex.join(ENGINE)} "$@"\n')
    slow.chmod(0o755)
    pod = sharing(place, COUNTED + "exit 5")
    with a_doomed_server(place, pod, engine=str(slow)) as server:
        await until((place / "asked").exists)
        server.kill()
        server.wait()
    assert containers_of(place) == []
    async with a_podman_node(place) as node:
        ended = await node.finished("p")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 5
    assert starts(place) == 1


async def test_a_container_that_was_made_but_never_started_is_made_anew(place: Path) -> None:
    labels = {DATA_DIR: str(place.resolve()), POD_UID: "left", CONTAINER: "c", ATTEMPT: "0"}
    flags = [f"--label={key}={value}" for key, value in labels.items()]
    engine("create", "--name", "onejob-left-c-0", *flags, *OPTIONS, IMAGE)
    async with a_podman_node(place) as node:
        assert containers_of(place) == []
        assert (await node.run(in_image()))["status"]["phase"] == "Succeeded"


async def test_containers_of_pods_that_went_away_meanwhile_are_removed(place: Path) -> None:
    async with a_podman_node(place, end_pods=False) as node:
        await node.create(sharing(place, COUNTED + "sleep 60"))
        await until(lambda: begun(place))
    assert states_of(place) == ["running"]
    async with an_api(place) as client:
        await client.write(Delete(Key(PODS, "default", "p"), grace_seconds=0))
    async with a_podman_node(place):
        await until(lambda: containers_of(place) == [])


async def test_removed_container_is_lost_and_never_rerun(place: Path) -> None:
    async with a_podman_node(place) as node:
        pod = sharing(place, COUNTED + "sleep 60", policy="Always")
        await node.create(with_spec(pod, terminationGracePeriodSeconds=0))
        await until(lambda: begun(place))
        engine("rm", "--force", *containers_of(place))
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Failed"
        assert (condition(ended, "DisruptionTarget") or {})["reason"] == "TerminationByKubelet"
    assert starts(place) == 1


async def test_under_run_containers_end_gracefully_when_their_owner_is_killed(place: Path) -> None:
    pod = sharing(
        place,
        COUNTED + "trap 'echo bye > /shared/bye; exit 0' TERM; while :; do sleep 0.05; done",
    )
    with a_doomed_server(place, pod, "owner") as server:
        await until(lambda: begun(place))
        server.kill()
        server.wait()
    await until(lambda: containers_of(place) == [])
    assert (place / "shared" / "bye").read_text() == "bye\n"


async def test_a_pod_that_waits_for_its_image_still_waits_after_a_restart(place: Path) -> None:
    async with a_podman_node(place, end_pods=False) as node:
        await node.create(in_image("true", image=ABSENT))
        await node.until("p", lambda p: waits_for(p) == "ErrImagePull")
    async with a_podman_node(place) as node:
        await node.until("p", lambda p: waits_for(p) == "ErrImagePull")
        assert (await node.pod("p"))["status"]["phase"] == "Pending"
        engine("tag", IMAGE, ABSENT)
        try:
            ended = await node.finished("p")
        finally:
            engine("rmi", ABSENT)
        assert ended["status"]["phase"] == "Succeeded"
