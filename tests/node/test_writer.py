"""The agent's status writes: in small batches, fair between owners, retried until answered."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from onejob.client.base import Bind, Client, Delete, Op, Patch, Result, Written
from onejob.node.agent.writer import Writer
from onejob.objects.meta import PODS, Key, Meta, OwnerReference
from onejob.virtual_time import run_virtual
from onejob.wire.errors import ApiError, Forbidden, InternalError, TooManyRequests

pytestmark = pytest.mark.virtual_time


class SlowApi:
    """API that records the names in each batch, and fails a given number of times."""

    def __init__(self, failures: int = 0) -> None:
        self.batches: list[list[str]] = []
        self._failures = failures

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        await asyncio.sleep(1)
        if self._failures:
            self._failures -= 1
            raise InternalError("not now")
        self.batches.append([op.key.name for op in ops if isinstance(op, Bind)])
        return [Written(1, b"") for _ in ops]


def bind(writer: Writer, name: str, owner: str, answered: list[str]) -> None:
    pod = Meta(name=name, uid=name, owner_references=(OwnerReference(uid=owner),) if owner else ())
    binding = Bind(Key(PODS, "default", name), "node")
    writer.submit(binding, lambda result: answered.append(name), pod)


async def written(api: SlowApi, pods: Sequence[tuple[str, str]]) -> list[str]:
    """Submit all Pods at once; return them in the order of their responses."""
    writer = Writer(cast("Client", api))
    answered: list[str] = []
    running = asyncio.create_task(writer.run())
    for name, owner in pods:
        bind(writer, name, owner, answered)
    await writer.settled()
    running.cancel()
    return answered


def test_the_pod_of_a_small_job_does_not_wait_for_those_of_a_giant_one() -> None:
    api = SlowApi()
    giant = [(f"giant-{number}", "giant") for number in range(1000)]
    answered = run_virtual(written(api, [*giant, ("small", "small"), ("alone", "")]))
    assert {"small", "alone"} <= set(api.batches[0])
    assert sorted(answered) == sorted([name for name, _ in giant] + ["small", "alone"])


def test_owners_take_turns_over_all_batches() -> None:
    api = SlowApi()
    owners = [f"owner-{number}" for number in range(40)]
    run_virtual(written(api, [(f"{owner}/{n}", owner) for owner in owners for n in range(20)]))
    place = {name: number for number, batch in enumerate(api.batches) for name in batch}
    first = [place[f"{owner}/0"] for owner in owners]
    last = [place[f"{owner}/19"] for owner in owners]
    assert max(first) <= min(last), "nobody ends before everybody has begun"


def test_writes_of_one_owner_keep_their_order() -> None:
    api = SlowApi()
    pods = [(f"giant-{number}", "giant") for number in range(500)]
    assert run_virtual(written(api, pods)) == [name for name, _ in pods]


def test_an_api_that_does_not_answer_is_asked_again() -> None:
    api = SlowApi(failures=3)
    assert run_virtual(written(api, [("p", "")])) == ["p"]
    assert api.batches == [["p"]]


class ForgetfulApi:
    """API that carries out a write, but once loses the response. It records the documents."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._answers = False

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        self.texts += [op.body for op in ops if isinstance(op, Patch)]
        if not self._answers:
            self._answers = True
            raise InternalError("part of it was rolled back")
        return [Written(len(self.texts), b"") for _ in ops]


async def test_unanswered_writes_retry_only_newest_per_object() -> None:
    api = ForgetfulApi()
    writer = Writer(cast("Client", api))
    answers: list[Result] = []
    for name, text in (("a", b"begins"), ("b", b"other"), ("a", b"ends")):
        patch = Patch(Key(PODS, "default", name), text)
        writer.submit(patch, answers.append, Meta(name=name, uid=name))
    running = asyncio.create_task(writer.run())
    await writer.settled()
    running.cancel()
    assert api.texts == [b"begins", b"ends", b"other", b"ends", b"other"]
    assert answers == [Written(5, b"")] * 3


class RefusingApi:
    """API that answers each write separately, the first ones with an error."""

    def __init__(self, *refusals: ApiError) -> None:
        self.refusals = list(refusals)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        if self.refusals:
            return [self.refusals.pop(0)] * len(ops)
        return [Written(1, b"") for _ in ops]


@pytest.mark.parametrize(
    "refusal",
    [InternalError("not this one"), Forbidden("a right is missing"), TooManyRequests("later")],
)
async def test_the_last_deletion_of_a_pod_is_asked_for_until_it_is_done(refusal: ApiError) -> None:
    """No other component would repeat it."""
    answers: list[Result] = []
    writer = Writer(cast("Client", RefusingApi(refusal, refusal)))
    running = asyncio.create_task(writer.run())
    deletion = Delete(Key(PODS, "default", "pod"), grace_seconds=0)
    writer.submit(deletion, answers.append, Meta(name="pod", uid="pod"))
    await asyncio.sleep(60)
    running.cancel()
    assert answers == [Written(1, b"")]
