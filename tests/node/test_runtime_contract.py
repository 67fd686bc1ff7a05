"""Runtime contract: the guarantees of `node.runtime.Runtime`, for each registered runtime."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from onejob.clock import SystemClock
from onejob.node.conditions import NodeConditions
from onejob.node.runtime import (
    AttemptRef,
    Ended,
    LimitsInForce,
    Lost,
    RecoveredState,
    Runtime,
    RuntimeEvent,
    Started,
    Unsupported,
)
from onejob.node.runtimes import RUNTIMES
from onejob.objects.meta import Key
from onejob.wire.errors import NotFound
from onejob.wire.requests import LogOptions
from tests.node.podman.support import NEEDS_PODMAN
from tests.node.runtime_subjects import SUBJECTS, Subject
from tests.node.support import until_true

LONG_SECONDS = 3600
_MARKS = {"podman": NEEDS_PODMAN}
_NAMES = [pytest.param(name, marks=_MARKS.get(name, ())) for name in SUBJECTS]


class Trial:
    """Started runtime with a record of its events."""

    def __init__(self, subject: Subject, runtime: Runtime) -> None:
        self._subject = subject
        self.runtime = runtime
        self.recovered = RecoveredState()
        self._events: list[RuntimeEvent] = []
        self._news = asyncio.Event()

    async def start(self) -> None:
        self.recovered = await self.runtime.start(self._deliver, self._fetch)

    def launch(self, uid: str, *, seconds: int = 0, code: int = 0) -> AttemptRef:
        """Launch the first attempt of a Pod's only container."""
        if (seconds or code) and not self._subject.lasts_and_fails:
            pytest.skip("the Pods of this runtime end at once with code 0")
        pod = self._subject.node_pod(uid, seconds=seconds, code=code)
        (container,) = pod.spec.containers
        self.runtime.launch(pod, container, 0)
        self.runtime.send_starts()
        return AttemptRef(uid, container.name, 0)

    async def run(self, uid: str, *, code: int = 0) -> Ended:
        """Run a Pod to its end."""
        return await self.ended(self.launch(uid, code=code))

    async def started(self, ref: AttemptRef) -> None:
        await self._until(lambda: bool(self.distinct(ref, Started)))

    async def ended(self, ref: AttemptRef) -> Ended:
        await self._until(lambda: bool(self.distinct(ref, Ended)))
        (event,) = self.distinct(ref, Ended)
        assert isinstance(event, Ended)
        return event

    def distinct(self, ref: AttemptRef, kind: type[RuntimeEvent]) -> list[RuntimeEvent]:
        """Return the different events of a kind: events may be repeated."""
        found: list[RuntimeEvent] = []
        for event in self._events:
            if event.ref == ref and type(event) is kind and event not in found:
                found.append(event)
        return found

    async def output(self, ref: AttemptRef) -> bytes:
        return b"".join([piece async for piece in self.runtime.logs(ref, LogOptions())])

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not holds():
                self._news.clear()
                await self._news.wait()

    def _deliver(self, events: Sequence[RuntimeEvent]) -> None:
        self._events.extend(events)
        self._news.set()

    async def _fetch(self, key: Key) -> bytes:
        raise NotFound(f"there is no {key}")


Play = Callable[[Trial], Awaitable[None]]


@pytest.fixture(params=_NAMES)
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "podman":
        request.getfixturevalue("engine_alone")
        request.getfixturevalue("place")
    if request.param == "slurm":
        request.getfixturevalue("slurm_stand_in")
    return SUBJECTS[request.param]


@asynccontextmanager
async def a_trial(subject: Subject, path: Path) -> AsyncIterator[Trial]:
    trial = Trial(subject, subject.make(path))
    await trial.start()
    try:
        yield trial
    finally:
        await trial.runtime.close(end_pods=True)


@pytest.fixture
def play(subject: Subject, tmp_path: Path) -> Callable[[Play], None]:
    """Return a function that runs a scene on a started runtime."""

    def run(scene: Play) -> None:
        async def on_a_trial() -> None:
            async with a_trial(subject, tmp_path) as trial:
                await scene(trial)

        asyncio.run(on_a_trial())

    return run


def test_every_registered_runtime_has_a_subject() -> None:
    assert SUBJECTS.keys() == RUNTIMES.keys()


@pytest.mark.parametrize(("seconds", "code"), [(1, 0), (0, 1)])
def test_a_runtime_whose_pods_end_at_once_skips_tests_of_others(
    tmp_path: Path, seconds: int, code: int
) -> None:
    subject = SUBJECTS["simulated"]._replace(lasts_and_fails=False)
    trial = Trial(subject, subject.make(tmp_path))
    with pytest.raises(pytest.skip.Exception):
        trial.launch("u", seconds=seconds, code=code)


def test_an_empty_data_dir_has_no_attempts(play: Callable[[Play], None]) -> None:
    async def scene(trial: Trial) -> None:
        assert list(trial.recovered.attempts) == []

    play(scene)


def test_a_launched_attempt_starts_and_ends_with_its_exit_code(
    play: Callable[[Play], None],
) -> None:
    async def scene(trial: Trial) -> None:
        ended = await trial.run("u", code=3)
        assert ended.exit.code == 3
        assert len(trial.distinct(ended.ref, Started)) <= 1
        assert not trial.runtime.running(ended.ref)

    play(scene)


def test_repeated_launches_of_a_running_attempt_start_it_once(
    play: Callable[[Play], None],
) -> None:
    async def scene(trial: Trial) -> None:
        ref = trial.launch("u", seconds=LONG_SECONDS)
        trial.launch("u", seconds=LONG_SECONDS)
        await trial.started(ref)
        trial.launch("u", seconds=LONG_SECONDS)
        await trial.run("other")
        assert trial.runtime.running(ref)
        assert len(trial.distinct(ref, Started)) == 1
        trial.runtime.stop(ref, 0)
        await trial.ended(ref)
        await trial.run("another")
        assert not trial.runtime.running(ref)

    play(scene)


def test_a_repeated_launch_of_an_ended_attempt_does_not_run_it_again(
    play: Callable[[Play], None],
) -> None:
    async def scene(trial: Trial) -> None:
        ended = await trial.run("u", code=3)
        output = await trial.output(ended.ref)
        trial.launch("u", code=3)
        await trial.run("other")
        assert trial.distinct(ended.ref, Ended) == [ended]
        assert await trial.output(ended.ref) == output
        assert not trial.runtime.running(ended.ref)

    play(scene)


def test_stop_ends_a_running_attempt(play: Callable[[Play], None]) -> None:
    async def scene(trial: Trial) -> None:
        ref = trial.launch("u", seconds=LONG_SECONDS)
        await trial.started(ref)
        assert trial.runtime.running(ref)
        trial.runtime.stop(ref, 1)
        assert (await trial.ended(ref)).exit.code > 128
        assert not trial.runtime.running(ref)

    play(scene)


def test_stop_of_an_attempt_that_does_not_run_is_ignored(play: Callable[[Play], None]) -> None:
    async def scene(trial: Trial) -> None:
        unknown = AttemptRef("u", "c", 7)
        ended = await trial.run("u")
        trial.runtime.stop(unknown, 0)
        trial.runtime.stop(ended.ref, 0)
        await trial.run("other")
        assert trial.distinct(unknown, Ended) == []
        assert trial.distinct(ended.ref, Ended) == [ended]

    play(scene)


@pytest.mark.parametrize("end", ["release", "discard"])
def test_a_pod_that_is_over_has_no_running_attempt(play: Callable[[Play], None], end: str) -> None:
    async def scene(trial: Trial) -> None:
        ref = trial.launch("u", seconds=LONG_SECONDS)
        await trial.started(ref)
        over = trial.runtime.release if end == "release" else trial.runtime.discard
        over("u")
        await until_true(lambda: not trial.runtime.running(ref))
        assert ref not in await trial.runtime.first_processes()

    play(scene)


def test_output_is_complete_once_the_attempt_has_ended(play: Callable[[Play], None]) -> None:
    async def scene(trial: Trial) -> None:
        ended = await trial.run("u")
        writes = trial.runtime.traits.runs_programs
        assert await trial.output(ended.ref) == (b"hello\n" if writes else b"")
        if writes:
            assert not trial.runtime.is_silent(ended.ref)

    play(scene)


def test_commands_run_in_a_running_container(
    subject: Subject, play: Callable[[Play], None]
) -> None:
    async def scene(trial: Trial) -> None:
        ref = trial.launch("u", seconds=LONG_SECONDS)
        await trial.started(ref)
        pod = subject.node_pod("u", seconds=LONG_SECONDS)
        result = await trial.runtime.run_command(pod, ref, ["true"], 60)
        assert (result.code, result.output) == (0, "")
        with suppress(Unsupported):
            session = await trial.runtime.open_session(pod, ref, ["true"], stdin=False, tty=False)
            assert (await session.finished()).code == 0
            await session.close()

    play(scene)


def test_stdin_of_a_container_without_one_is_not_opened(play: Callable[[Play], None]) -> None:
    async def scene(trial: Trial) -> None:
        ref = trial.launch("u", seconds=LONG_SECONDS)
        await trial.started(ref)
        with suppress(Unsupported):
            assert await trial.runtime.open_stdin(ref, once=False) is None

    play(scene)


def test_processes_are_listed_if_they_are_the_hosts(play: Callable[[Play], None]) -> None:
    async def scene(trial: Trial) -> None:
        ref = trial.launch("u", seconds=LONG_SECONDS)
        await trial.started(ref)
        expected = {ref} if trial.runtime.traits.on_host else set()
        assert set(await trial.runtime.first_processes()) == expected

    play(scene)


def test_optional_methods_have_no_effect_without_cause(
    subject: Subject, play: Callable[[Play], None]
) -> None:
    async def scene(trial: Trial) -> None:
        trial.runtime.send_starts()
        trial.runtime.reboot_settled()
        await trial.runtime.refresh_volumes(subject.node_pod("u"))
        assert isinstance(trial.runtime.limits_in_force, LimitsInForce | None)
        assert (await trial.run("u")).exit.code == 0

    play(scene)


async def test_conditions_and_preparation_precede_the_start(
    subject: Subject, tmp_path: Path
) -> None:
    runtime = subject.make(tmp_path)
    runtime.report_to(NodeConditions(SystemClock().now, lambda event: None))
    runtime.prepare()
    trial = Trial(subject, runtime)
    await trial.start()
    try:
        await trial.run("u")
    finally:
        await runtime.close(end_pods=True)


async def test_close_with_end_pods_leaves_nothing_running(subject: Subject, tmp_path: Path) -> None:
    async with a_trial(subject, tmp_path) as trial:
        ref = trial.launch("u", seconds=LONG_SECONDS)
        await trial.started(ref)
    async with a_trial(subject, tmp_path) as trial:
        assert all(type(event) in (Ended, Lost) for event in trial.recovered.attempts)
        assert not trial.runtime.running(ref)
