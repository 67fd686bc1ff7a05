"""Pod failure policies and replacement policies."""

from typing import Any

from tests.differential.documents import disrupted, fail_job, indexed, job
from tests.differential.registry import scenario
from tests.differential.side import Side


def _policy(*rules: Any) -> dict[str, Any]:
    return {"rules": list(rules)}


_IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


@scenario
async def an_exit_code_fails_the_job(it: Side) -> None:
    await it.create(
        "jobs", job(parallelism=2, completions=2, podFailurePolicy=_policy(fail_job(42)))
    )
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods[:1], 42)
    await it.settle("failing")
    await it.reap()
    await it.settle()


@scenario
async def another_exit_code_does_not(it: Side) -> None:
    await it.create("jobs", job(podFailurePolicy=_policy(fail_job(42))))
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods, 41)
    await it.settle()


@scenario
async def an_exit_code_of_a_named_container(it: Side) -> None:
    rule = fail_job(7)
    rule["onExitCodes"]["containerName"] = "c"
    await it.create("jobs", job(podFailurePolicy=_policy(rule)))
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods, 7)
    await it.settle()


@scenario
async def a_disruption_is_ignored(it: Side) -> None:
    await it.create("jobs", job(backoffLimit=0, podFailurePolicy=_policy(_IGNORE)))
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods, 137, conditions=disrupted(it.now()))
    await it.settle("ignored")
    again = await it.pods("j", 1)
    await it.start(again)
    await it.end(again)
    await it.settle()


@scenario
async def a_disruption_fails_the_job(it: Side) -> None:
    rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    await it.create("jobs", job(podFailurePolicy=_policy(rule)))
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods, 137, conditions=disrupted(it.now()))
    await it.settle()


@scenario
async def the_first_rule_counts(it: Side) -> None:
    count = {"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}}
    await it.create("jobs", job(backoffLimit=0, podFailurePolicy=_policy(count, fail_job(42))))
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods, 42)
    await it.settle()


@scenario
async def all_codes_but_one(it: Side) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}
    await it.create("jobs", job(podFailurePolicy=_policy(rule)))
    pods = await it.pods("j", 1)
    await it.start(pods)
    await it.end(pods, 2)
    await it.settle()


@scenario
async def an_index_is_failed(it: Side) -> None:
    rule = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [5]}}
    await it.create("jobs", indexed(2, backoffLimitPerIndex=3, podFailurePolicy=_policy(rule)))
    pods = await it.pods("j", 2)
    await it.start(pods)
    await it.end(pods[:1], 5)
    await it.settle("index 0 has failed")
    await it.end(pods[1:])
    await it.settle()


@scenario
async def replaced_only_once_failed(it: Side) -> None:
    await it.create("jobs", job(podReplacementPolicy="Failed"))
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.delete("pods", pod["metadata"]["name"])
    await it.settle("terminating")
    await it.reap()
    await it.settle()


@scenario
async def replaced_while_terminating(it: Side) -> None:
    await it.create("jobs", job(podReplacementPolicy="TerminatingOrFailed"))
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.delete("pods", pod["metadata"]["name"])
    await it.settle("terminating")
    await it.until("jobs", "j", lambda job: job["status"].get("active") == 1)
    await it.settle("replaced")


@scenario
async def a_terminating_pod_that_succeeds(it: Side) -> None:
    await it.create("jobs", job(podReplacementPolicy="Failed"))
    (pod,) = await it.pods("j", 1)
    await it.start([pod])
    await it.delete("pods", pod["metadata"]["name"])
    await it.settle("terminating")
    await it.reap(0)
    await it.settle()
