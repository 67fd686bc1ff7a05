"""Back-off limits per index."""

from tests.differential.documents import indexed
from tests.differential.registry import scenario
from tests.differential.side import Side


@scenario
async def an_index_without_retries(it: Side) -> None:
    await it.create("jobs", indexed(2, backoffLimitPerIndex=0))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods[:1], 1)
    await it.settle("index 0 has failed")
    await it.end(pods[1:])
    await it.settle()
    await it.show_table("jobs")


@scenario
async def an_index_with_a_retry(it: Side) -> None:
    await it.create("jobs", indexed(2, backoffLimitPerIndex=1))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods[:1], 1)
    await it.end(pods[1:])
    await it.settle("in back-off")
    again = await it.pods("j", 1)
    await it.start(again)
    await it.end(again)
    await it.settle()


@scenario
async def too_many_failed_indexes(it: Side) -> None:
    await it.create("jobs", indexed(4, backoffLimitPerIndex=0, maxFailedIndexes=1))
    pods = await it.pods("j", 4)
    await it.start(pods)
    await it.end(pods[:2], 1)
    await it.settle("failing")
    await it.reap()
    await it.settle()


@scenario
async def all_indexes_fail(it: Side) -> None:
    await it.create("jobs", indexed(3, 3, backoffLimitPerIndex=0))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.end(pods, 1)
    await it.settle()


@scenario
async def the_limit_of_the_whole_job_holds_too(it: Side) -> None:
    await it.create("jobs", indexed(3, 3, backoffLimitPerIndex=5, backoffLimit=0))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.end(pods[:1], 1)
    await it.settle("one has failed")
    await it.reap()
    await it.settle()


@scenario
async def failed_indexes_are_joined(it: Side) -> None:
    await it.create("jobs", indexed(6, 6, backoffLimitPerIndex=0))
    pods = await it.pods("j", 6)
    await it.start(pods)
    await it.end([pods[0], pods[1], pods[2], pods[5]], 1)
    await it.end([pods[3], pods[4]])
    await it.settle()
