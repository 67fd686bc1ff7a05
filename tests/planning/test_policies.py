"""Job policies, one table each."""

from typing import Any

import msgspec
import pytest

from onejob.gates import FeatureGates
from onejob.objects.job import PodFailurePolicy, SuccessPolicy
from onejob.planning.job.failure_policy import PolicyMatch, match_failure_policy
from onejob.planning.job.indexes import parse_indexes
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.scaling import split_by_index
from onejob.planning.job.success_policy import matching_success_rule
from tests.planning.build import a_pod, indexed_pods


def exit_rule(action: str, operator: str, *values: int, container: str | None = None) -> Any:
    rule: dict[str, Any] = {"operator": operator, "values": values}
    if container is not None:
        rule["containerName"] = container
    return {"action": action, "onExitCodes": rule}


def condition_rule(action: str, *patterns: tuple[str, str]) -> Any:
    return {
        "action": action,
        "onPodConditions": [{"type": kind, "status": status} for kind, status in patterns],
    }


def ended(name: str, code: int) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code}}}


DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("rules", "status", "expected"),
    [
        ([], {}, None),
        ([exit_rule("Ignore", "In", 3)], {"containerStatuses": [ended("a", 3)]}, ("Ignore", 0)),
        ([exit_rule("Count", "NotIn", 3)], {"containerStatuses": [ended("a", 3)]}, None),
        ([exit_rule("Count", "NotIn", 3)], {"containerStatuses": [ended("a", 4)]}, ("Count", 0)),
        (
            [exit_rule("FailIndex", "In", 3, container="b")],
            {"containerStatuses": [ended("a", 3)]},
            None,
        ),
        (
            [exit_rule("FailIndex", "In", 3, container="b")],
            {"containerStatuses": [ended("a", 1)], "initContainerStatuses": [ended("b", 3)]},
            ("FailIndex", 0),
        ),
        (
            [
                exit_rule("Later", "In", 3),
                exit_rule("Ignore", "Near", 3),
                exit_rule("Count", "In", 3),
            ],
            {"containerStatuses": [ended("a", 3)]},
            ("Count", 2),
        ),
        ([condition_rule("Ignore", ("DisruptionTarget", "True"))], DISRUPTED, ("Ignore", 0)),
        ([condition_rule("Ignore", ("DisruptionTarget", "False"))], DISRUPTED, None),
        (
            [condition_rule("Count", ("Other", "True"), ("DisruptionTarget", "True"))],
            DISRUPTED,
            ("Count", 0),
        ),
    ],
)
def test_the_first_failure_rule_that_matches_decides(
    rules: list[Any], status: dict[str, Any], expected: tuple[str, int] | None
) -> None:
    policy = msgspec.convert({"rules": rules}, PodFailurePolicy)
    ruling = match_failure_policy(policy, a_pod("p", "F", status=status))
    assert (ruling.action, ruling.rule_index) == (expected or (None, None))
    assert ruling.counts == (ruling.action != "Ignore")


def test_a_condition_that_fails_the_job_is_named() -> None:
    policy = {"rules": [condition_rule("FailJob", ("DisruptionTarget", "True"))]}
    ruling = match_failure_policy(
        msgspec.convert(policy, PodFailurePolicy), a_pod("p", "F", status=DISRUPTED)
    )
    assert ruling.message == (
        "Pod default/p has condition DisruptionTarget matching FailJob rule at index 0"
    )


@pytest.mark.parametrize(
    ("rules", "completed", "rule"),
    [
        ([{"succeededCount": 1}], "", None),
        ([{"succeededCount": 2}], "0", None),
        ([{"succeededCount": 2}], "0,5", 0),
        ([{"succeededIndexes": "0-2"}], "0,1", None),
        ([{"succeededIndexes": "0-2"}], "0-2", 0),
        ([{"succeededIndexes": "0-2", "succeededCount": 2}], "0,5-9", None),
        ([{"succeededIndexes": "0-2", "succeededCount": 2}], "0,2", 0),
        ([{"succeededIndexes": ""}], "0", None),
        ([{"succeededIndexes": "nonsense", "succeededCount": 0}], "0", None),
        ([{"succeededCount": 9}, {"succeededIndexes": "1"}], "1", 1),
        ([{}], "0", None),
    ],
)
def test_the_first_success_rule_that_is_met_decides(
    rules: list[Any], completed: str, rule: int | None
) -> None:
    policy = msgspec.convert({"rules": rules}, SuccessPolicy)
    assert matching_success_rule(policy, 10, parse_indexes(completed, 10)) == rule


def test_without_a_policy_nothing_is_decided() -> None:
    assert match_failure_policy(None, a_pod("p", "F")) == PolicyMatch()
    assert matching_success_rule(None, 10, parse_indexes("0-9", 10)) is None


def test_of_pods_with_one_index_the_best_is_kept() -> None:
    pods = [*indexed_pods("0:R 0:P 1:P 9:R"), a_pod("lost", "R")]
    remove, keep = split_by_index(pods, 5)
    assert {pod.metadata.name for pod in keep} == {"pod-0", "pod-2"}
    assert {pod.metadata.name for pod in remove} == {"pod-1", "pod-3", "lost"}


def test_settings_follow_the_gates() -> None:
    assert Settings.under(FeatureGates()) == Settings()
    off = FeatureGates(
        {
            "JobManagedBy": False,
            "JobLifecycleEvents": False,
            "MutableSchedulingDirectivesForSuspendedJobs": False,
        }
    )
    assert Settings.under(off) == Settings(
        respect_managed_by=False, lifecycle_events=False, suspending_clears_start_time=False
    )
