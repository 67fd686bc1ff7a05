"""Success policies."""

from tests.differential.documents import indexed
from tests.differential.registry import scenario
from tests.differential.side import Side


@scenario
async def a_leader_is_enough(it: Side) -> None:
    await it.create("jobs", indexed(3, successPolicy={"rules": [{"succeededIndexes": "0"}]}))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.end(pods[:1])
    await it.settle("criteria met")
    await it.reap()
    await it.settle()
    await it.show_table("jobs")


@scenario
async def a_number_is_enough(it: Side) -> None:
    await it.create("jobs", indexed(4, successPolicy={"rules": [{"succeededCount": 2}]}))
    pods = await it.pods("j", 4)
    await it.start(pods)
    await it.end(pods[2:])
    await it.settle("criteria met")
    await it.reap()
    await it.settle()


@scenario
async def a_number_of_some(it: Side) -> None:
    rule = {"succeededIndexes": "0,2-3", "succeededCount": 2}
    await it.create("jobs", indexed(4, successPolicy={"rules": [rule]}))
    pods = await it.pods("j", 4)
    await it.start(pods)
    await it.end(pods[1:3])
    await it.settle("one of three")
    await it.end(pods[3:])
    await it.settle("criteria met")
    await it.reap()
    await it.settle()


@scenario
async def the_second_rule_is_met(it: Side) -> None:
    rules = [{"succeededIndexes": "0-1"}, {"succeededIndexes": "2"}]
    await it.create("jobs", indexed(3, successPolicy={"rules": rules}))
    pods = await it.pods("j", 3)
    await it.start(pods)
    await it.end(pods[2:])
    await it.settle("criteria met")
    await it.reap()
    await it.settle()


@scenario
async def all_succeed_at_once(it: Side) -> None:
    await it.create("jobs", indexed(2, successPolicy={"rules": [{"succeededIndexes": "0-1"}]}))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods)
    await it.settle()


@scenario
async def a_failure_after_the_criteria_were_met(it: Side) -> None:
    await it.create(
        "jobs", indexed(2, backoffLimit=0, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    )
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods[:1])
    await it.until("jobs", "j", lambda job: "conditions" in job["status"])
    await it.reap(1)
    await it.settle()
