"""Edge cases of SEMANTICS section 11 that the strategies of Jobs and CronJobs decide."""

from typing import Any

import pytest

from tests.api.kinds.build import (
    UID,
    a_container,
    a_cronjob,
    a_job,
    a_template,
    create,
    created,
    strategy,
    update,
    update_status,
    update_to,
)

JOB = strategy("jobs.batch")
CRONJOB = strategy("cronjobs.batch")

SUSPENDED = {"type": "Suspended", "status": "True"}


@pytest.mark.parametrize(
    ("given", "parallelism", "completions"),
    [
        ({}, 1, 1),
        ({"completions": 5}, 1, 5),
        ({"parallelism": 5}, 5, None),
        ({"parallelism": 3, "completions": 5}, 3, 5),
        ({"parallelism": 0}, 0, None),
    ],
)
@pytest.mark.edge_case(1)
def test_completions_default_to_one_only_when_parallelism_is_unset_too(
    given: dict[str, Any], parallelism: int, completions: int | None
) -> None:
    spec = created(JOB, a_job(**given))["spec"]
    assert spec["parallelism"] == parallelism
    assert spec.get("completions") == completions


GENERATED = {
    "job-name": "j",
    "controller-uid": UID,
    "batch.kubernetes.io/job-name": "j",
    "batch.kubernetes.io/controller-uid": UID,
}


@pytest.mark.parametrize(
    ("own", "of_template", "shown"),
    [
        ({}, {}, GENERATED),
        ({}, {"app": "x"}, {"app": "x", **GENERATED}),
        ({"app": "x"}, {}, {"app": "x"}),
        # Equal to the template's, but its own: nothing is added.
        ({"app": "x"}, {"app": "x"}, {"app": "x"}),
    ],
)
@pytest.mark.edge_case(2)
def test_a_job_without_labels_inherits_its_templates_with_the_generated_ones(
    own: dict[str, str], of_template: dict[str, str], shown: dict[str, str]
) -> None:
    template = {"metadata": {"labels": of_template}, **a_template()}
    job = a_job(template=template)
    job["metadata"]["labels"] = own
    stored = created(JOB, job)
    assert stored["metadata"]["labels"] == shown
    assert stored["spec"]["template"]["metadata"]["labels"] == {**of_template, **GENERATED}


@pytest.mark.edge_case(3)
def test_the_job_template_of_a_cronjob_is_not_defaulted_like_a_job() -> None:
    spec = created(CRONJOB, a_cronjob())["spec"]["jobTemplate"]["spec"]
    assert spec.keys() == {"template"}
    assert spec["template"]["spec"]["dnsPolicy"] == "ClusterFirst"


@pytest.mark.edge_case(3)
def test_the_templates_of_a_cronjob_have_metadata_even_if_it_is_empty() -> None:
    spec = created(CRONJOB, a_cronjob())["spec"]
    assert spec["jobTemplate"]["metadata"] == {}
    assert spec["jobTemplate"]["spec"]["template"]["metadata"] == {}


@pytest.mark.edge_case(4)
def test_invalid_template_label_is_reported_twice_and_long_name_once() -> None:
    template = {"metadata": {"labels": {"a": "not ok"}}, **a_template()}
    _, errors = create(JOB, a_job(template=template))
    assert [error.split(":")[0] for error in errors] == ["metadata.labels", "spec.template.labels"]

    _, errors = create(JOB, a_job(name="n" * 64))
    assert (
        errors
        == [f'spec.template.labels: Invalid value: "{"n" * 64}": must be no more than 63 bytes'] * 2
    )


@pytest.mark.edge_case(4)
def test_errors_of_generated_labels_name_the_label() -> None:
    labels = {"job-name": "other"}
    _, errors = create(JOB, a_job(template={"metadata": {"labels": labels}, **a_template()}))
    (error,) = errors
    assert error.startswith('spec.template.metadata.labels[job-name]: Invalid value: {"')
    assert error.endswith("}: must be 'j'")


@pytest.mark.edge_case(5)
def test_scaling_an_indexed_job_up_can_fail_on_its_name() -> None:
    name = "n" * 61
    job = created(JOB, a_job(name=name, completionMode="Indexed", completions=10, parallelism=10))
    _, errors = update(JOB, job, completions=11, parallelism=11)
    assert errors == [
        f'metadata.name: Invalid value: "{name}": '
        f"will not able to create pod with invalid DNS label: {name}-10"
    ]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"completions": 5, "parallelism": 5}, []),
        ({"parallelism": 9}, []),
        ({"parallelism": 0}, []),
        (
            {"completions": 5},
            [
                "spec.completions: Invalid value: 5: "
                "can only be modified in tandem with spec.parallelism"
            ],
        ),
        (
            {"completions": None},
            ["spec.completions: Required value: when completion mode is Indexed"],
        ),
    ],
)
@pytest.mark.edge_case(6)
def test_completions_of_an_indexed_job_change_only_in_tandem(
    changes: dict[str, Any], errors: list[str]
) -> None:
    job = created(JOB, a_job(completionMode="Indexed", completions=3, parallelism=3))
    assert update(JOB, job, **changes)[1] == errors


@pytest.mark.parametrize(
    "field",
    [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffSeconds",
        "failedPodsLimit",
    ],
)
@pytest.mark.edge_case(7, 8)
def test_zero_is_valid_and_less_is_not(field: str) -> None:
    job = a_job()
    job["spec"][field] = 0
    assert create(JOB, job)[1] == []
    job["spec"][field] = -1
    assert create(JOB, job)[1] == [
        f"spec.{field}: Invalid value: -1: must be greater than or equal to 0"
    ]


@pytest.mark.edge_case(9)
def test_a_suspended_job_with_nothing_to_do_may_complete_without_having_started() -> None:
    job = created(JOB, a_job(completions=0, suspend=True))
    status = {
        "completionTime": "2026-01-01T12:00:00Z",
        "conditions": [
            {"type": "SuccessCriteriaMet", "status": "True"},
            {"type": "Complete", "status": "True"},
        ],
    }
    assert update_status(JOB, job, status) == []
    job["spec"]["suspend"] = False
    assert update_status(JOB, job, status) == [
        "status.startTime: Required value: startTime is required for finished job"
    ]


@pytest.mark.edge_case(10)
def test_interim_conditions_that_are_false_are_no_obstacle() -> None:
    job = created(JOB, a_job())
    conditions = [
        {"type": "SuccessCriteriaMet", "status": "False"},
        {"type": "FailureTarget", "status": "False"},
    ]
    assert update_status(JOB, job, {"conditions": conditions}) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", None),
        ("0,1", None),
        ("0-2", None),
        ("3-3", "non-increasing order, previous: 3, current: 3"),
        ("1 ", 'cannot convert string to integer for index: "1 "'),
        ("1_0", 'cannot convert string to integer for index: "1_0"'),
        ("٣", 'cannot convert string to integer for index: "٣"'),
        ("1,,2", 'cannot convert string to integer for index: ""'),
        ("5", 'too large index: "5"'),
    ],
)
@pytest.mark.edge_case(31, 32)
def test_index_texts_are_parsed_strictly(text: str, problem: str | None) -> None:
    job = created(JOB, a_job(completionMode="Indexed", completions=5, backoffLimitPerIndex=1))
    errors = update_status(JOB, job, {"failedIndexes": text})
    if problem is None:
        assert errors == []
    else:
        assert errors == [
            f'status.failedIndexes: Invalid value: "{text}": error parsing failedIndexes: {problem}'
        ]


FAILURE_POLICY = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X"}]}]}


@pytest.mark.edge_case(38)
def test_a_failure_policy_makes_the_replacement_policy_failed() -> None:
    job = created(JOB, a_job(podFailurePolicy=FAILURE_POLICY))
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"
    _, errors = create(
        JOB, a_job(podFailurePolicy=FAILURE_POLICY, podReplacementPolicy="TerminatingOrFailed")
    )
    assert errors == [
        'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": '
        'supported values: "Failed"'
    ]


@pytest.mark.edge_case(38)
def test_adding_a_failure_policy_later_trips_over_the_stored_replacement_policy() -> None:
    job = created(JOB, a_job())
    _, errors = update(JOB, job, podFailurePolicy=FAILURE_POLICY)
    assert [error.split(": ")[:2] for error in errors] == [
        ["spec.podReplacementPolicy", "Unsupported value"],
        ["spec.podFailurePolicy", "Invalid value"],
    ]


@pytest.mark.parametrize(
    ("suspend", "status", "allowed"),
    [
        (True, {}, True),
        (True, {"startTime": "2026-01-01T12:00:00Z", "conditions": [SUSPENDED]}, True),
        (True, {"conditions": [SUSPENDED], "terminating": 2}, True),
        (True, {"startTime": "2026-01-01T12:00:00Z"}, False),
        (True, {"conditions": [SUSPENDED], "active": 1}, False),
        (False, {}, False),
        (False, {"conditions": [SUSPENDED]}, False),
    ],
)
@pytest.mark.edge_case(47)
def test_the_template_opens_by_the_state_of_the_stored_job(
    suspend: bool, status: dict[str, Any], allowed: bool
) -> None:
    job = created(JOB, a_job(suspend=suspend))
    job["status"] = status
    new = {**job, "spec": {**job["spec"], "suspend": False}}
    template = job["spec"]["template"]
    new["spec"]["template"] = {
        "metadata": {
            "labels": {**template["metadata"]["labels"], "tier": "a"},
            "annotations": {"note": "b"},
        },
        "spec": {
            **template["spec"],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "containers": [
                {**template["spec"]["containers"][0], "resources": {"limits": {"cpu": "1"}}}
            ],
        },
    }
    _, errors = update_to(JOB, job, new)
    if allowed:
        assert errors == []
    else:
        assert len(errors) == 1
        assert errors[0].startswith("spec.template: Invalid value: {")
        assert errors[0].endswith(": field is immutable")


@pytest.mark.edge_case(47)
def test_an_open_template_still_keeps_its_images() -> None:
    job = created(JOB, a_job(suspend=True))
    template = {
        **job["spec"]["template"],
        "spec": {**job["spec"]["template"]["spec"], "containers": [a_container(image="other:2")]},
    }
    _, errors = update(JOB, job, template=template)
    assert [error.split(": ")[0] for error in errors] == ["spec.template.spec"]


@pytest.mark.edge_case(51)
def test_a_corrupt_status_does_not_block_an_unrelated_update() -> None:
    job = created(JOB, a_job())
    job["status"] = {
        "active": 1,
        "ready": 3,
        "conditions": [{"type": "Complete", "status": "True"}],
    }
    assert update_status(JOB, job, {**job["status"], "failed": 1}) == []
    assert update_status(JOB, job, {**job["status"], "ready": 4}) == [
        "status.ready: Invalid value: 4: cannot set more ready pods than active"
    ]
