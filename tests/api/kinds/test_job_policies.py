"""Validation of podFailurePolicy, successPolicy and Indexed Jobs, one row each."""

from typing import Any

import pytest

from tests.api.kinds.build import a_job, a_template, create, strategy

JOB = strategy("jobs.batch")

QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def a_rule(**fields: Any) -> dict[str, Any]:
    return {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}, **fields}


def exit_codes(**fields: Any) -> dict[str, Any]:
    return a_rule(onExitCodes={"operator": "In", "values": [1], **fields})


def on_conditions(*patterns: dict[str, str]) -> dict[str, Any]:
    return {"action": "Ignore", "onPodConditions": list(patterns)}


@pytest.mark.parametrize(
    ("rule", "errors"),
    [
        (a_rule(), []),
        (on_conditions({"type": "DisruptionTarget"}), []),
        (exit_codes(operator="NotIn", values=[-1, 0, 1]), []),
        (exit_codes(containerName="main"), []),
        (
            a_rule(action=""),
            ['.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]'],
        ),
        (
            a_rule(action="Explode"),
            [
                '.action: Unsupported value: "Explode": supported values: "Count", "FailIndex", '
                '"FailJob", "Ignore"'
            ],
        ),
        (
            a_rule(action="FailIndex"),
            ['.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set'],
        ),
        (
            {"action": "Count"},
            [": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"],
        ),
        (
            on_conditions(),
            [": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"],
        ),
        (
            a_rule(onPodConditions=[{"type": "X"}]),
            [": Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"],
        ),
        (
            exit_codes(operator=""),
            ['.onExitCodes.operator: Required value: valid values: ["In" "NotIn"]'],
        ),
        (
            exit_codes(operator="Near"),
            ['.onExitCodes.operator: Unsupported value: "Near": supported values: "In", "NotIn"'],
        ),
        (
            exit_codes(containerName="other"),
            [
                '.onExitCodes.containerName: Invalid value: "other": '
                "must be one of the container or initContainer names in the pod template"
            ],
        ),
        (
            exit_codes(values=[]),
            [".onExitCodes.values: Invalid value: []: at least one value is required"],
        ),
        (
            {"action": "Count", "onExitCodes": {"operator": "In"}},
            [".onExitCodes.values: Invalid value: null: at least one value is required"],
        ),
        (
            exit_codes(values=[0, 0]),
            [
                ".onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
                ".onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                ".onExitCodes.values[1]: Duplicate value: 0",
            ],
        ),
        (
            exit_codes(values=list(range(1, 257))),
            [".onExitCodes.values: Too many: 256: must have at most 255 items"],
        ),
        (exit_codes(values=[3, 3]), [".onExitCodes.values[1]: Duplicate value: 3"]),
        (
            exit_codes(values=[4, 3]),
            [".onExitCodes.values: Invalid value: [4,3]: must be ordered"],
        ),
        (
            exit_codes(values=[0]),
            [".onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"],
        ),
        (
            on_conditions(*[{"type": "X"}] * 21),
            [".onPodConditions: Too many: 21: must have at most 20 items"],
        ),
        (
            on_conditions({"type": ""}),
            [
                '.onPodConditions[0].type: Invalid value: "": name part must be non-empty',
                f'.onPodConditions[0].type: Invalid value: "": {QUALIFIED}',
            ],
        ),
        (
            on_conditions({"type": "X", "status": "Perhaps"}),
            [
                '.onPodConditions[0].status: Unsupported value: "Perhaps": '
                'supported values: "False", "True", "Unknown"'
            ],
        ),
    ],
)
def test_rules_of_a_failure_policy(rule: dict[str, Any], errors: list[str]) -> None:
    _, found = create(JOB, a_job(podFailurePolicy={"rules": [rule]}))
    assert found == [f"spec.podFailurePolicy.rules[0]{error}" for error in errors]


def test_a_failure_policy_may_be_empty_but_not_endless() -> None:
    assert create(JOB, a_job(podFailurePolicy={}))[1] == []
    assert create(JOB, a_job(podFailurePolicy={"rules": [a_rule()] * 21}))[1] == [
        "spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items"
    ]


def test_a_failure_policy_needs_pods_that_are_not_restarted() -> None:
    template = a_template(restartPolicy="OnFailure")
    job = a_job(template=template, podFailurePolicy={"rules": [a_rule()]})
    assert create(JOB, job)[1] == [
        'spec.template.spec.restartPolicy: Invalid value: "OnFailure": '
        'only "Never" is supported when podFailurePolicy is specified'
    ]


AT_LEAST_ONE = "at least one of succeededCount or succeededIndexes must be specified"


@pytest.mark.parametrize(
    ("rule", "errors"),
    [
        ({"succeededIndexes": "0,2-4"}, []),
        ({"succeededIndexes": ""}, []),
        ({"succeededCount": 0}, []),
        ({"succeededCount": 3, "succeededIndexes": "0-2"}, []),
        ({}, [f": Required value: {AT_LEAST_ONE}"]),
        (
            {"succeededIndexes": "1--3"},
            [
                '.succeededIndexes: Invalid value: "1--3": error parsing succeededIndexes: the '
                'fragment "1--3" violates the requirement that an index interval can have at '
                "most two parts separated by '-'"
            ],
        ),
        (
            {"succeededIndexes": "5"},
            [
                '.succeededIndexes: Invalid value: "5": error parsing succeededIndexes: '
                'too large index: "5"'
            ],
        ),
        (
            {"succeededCount": -1},
            [".succeededCount: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"succeededCount": 6},
            [
                ".succeededCount: Invalid value: 6: must be less than or equal to 5 "
                "(the number of specified completions)"
            ],
        ),
        (
            {"succeededCount": 4, "succeededIndexes": "0-2"},
            [
                ".succeededCount: Invalid value: 4: must be less than or equal to 3 "
                "(the number of indexes in the specified succeededIndexes field)"
            ],
        ),
        (
            {"succeededCount": 1, "succeededIndexes": "x"},
            [
                '.succeededIndexes: Invalid value: "x": error parsing succeededIndexes: '
                'cannot convert string to integer for index: "x"',
                ".succeededCount: Invalid value: 1: must be less than or equal to 0 "
                "(the number of indexes in the specified succeededIndexes field)",
            ],
        ),
    ],
)
def test_rules_of_a_success_policy(rule: dict[str, Any], errors: list[str]) -> None:
    job = a_job(completionMode="Indexed", completions=5, successPolicy={"rules": [rule]})
    found = create(JOB, job)[1]
    assert found == [f"spec.successPolicy.rules[0]{error}" for error in errors]


def test_a_success_policy_has_rules_but_not_too_many_or_too_long() -> None:
    def errors(rules: list[dict[str, Any]]) -> list[str]:
        job = a_job(completionMode="Indexed", completions=5, successPolicy={"rules": rules})
        return create(JOB, job)[1]

    assert errors([]) == [
        "spec.successPolicy.rules: Required value: "
        "at least one rules must be specified when the successPolicy is specified"
    ]
    assert errors([{"succeededCount": 1}] * 21) == [
        "spec.successPolicy.rules: Too many: 21: must have at most 20 items"
    ]
    assert errors([{"succeededIndexes": "1" * 65537}])[0] == (
        "spec.successPolicy.rules[0].succeededIndexes: Too long: may not be more than 65536 bytes"
    )
    assert "Too long" in errors([{"succeededIndexes": "é" * 32769}])[0], "bytes, not characters"


ABOVE = "when completions are above 100000 and used with backoff limit per index"


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"completions": 3, "parallelism": 100_000}, []),
        (
            {"completions": 3, "parallelism": 100_001},
            [
                "spec.parallelism: Invalid value: 100001: "
                "must be less than or equal to 100000 when completion mode is Indexed"
            ],
        ),
        ({"parallelism": 1}, ["spec.completions: Required value: when completion mode is Indexed"]),
        (
            {"completions": 3, "backoffLimitPerIndex": 1, "maxFailedIndexes": 4},
            ["spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions"],
        ),
        (
            {"completions": 3, "maxFailedIndexes": 1},
            ["spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"],
        ),
        (
            {"completions": 100_001, "backoffLimitPerIndex": 1},
            [
                "spec.maxFailedIndexes: Required value: "
                "must be specified when completions is above 100000"
            ],
        ),
        (
            {
                "completions": 100_001,
                "backoffLimitPerIndex": 1,
                "maxFailedIndexes": 10_001,
                "parallelism": 10_001,
            },
            [
                f"spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 "
                f"{ABOVE}",
                f"spec.maxFailedIndexes: Invalid value: 10001: must be less than or equal to "
                f"10000 {ABOVE}",
            ],
        ),
        ({"completions": 100_001, "parallelism": 10_001}, []),
    ],
)
def test_rules_of_indexed_jobs(spec: dict[str, Any], errors: list[str]) -> None:
    assert create(JOB, a_job(completionMode="Indexed", **spec))[1] == errors


def test_indexed_only_fields_are_rejected_in_non_indexed_jobs() -> None:
    policy = {"rules": [{"succeededCount": -9}]}
    job = a_job(backoffLimitPerIndex=1, maxFailedIndexes=1, successPolicy=policy)
    assert create(JOB, job)[1] == [
        "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
        'spec.successPolicy: Invalid value: {"rules":[{"succeededCount":-9}]}: '
        "requires indexed completion mode",
    ]


def test_success_policy_requires_indexed_mode() -> None:
    policy = {"rules": [{"succeededCount": 1}]}
    refusal = (
        'spec.successPolicy: Invalid value: {"rules":[{"succeededCount":1}]}: '
        "requires indexed completion mode"
    )
    errors = create(JOB, a_job(completionMode="Sorted", successPolicy=policy))[1]
    assert errors == [
        'spec.completionMode: Unsupported value: "Sorted": supported values: "NonIndexed", '
        '"Indexed"',
        refusal,
    ]
    empty = {"rules": [{"action": "Count"}]}
    errors = create(JOB, a_job(successPolicy=policy, podFailurePolicy=empty))[1]
    assert errors == [
        "spec.podFailurePolicy.rules[0]: Invalid value: "
        "specifying one of OnExitCodes and OnPodConditions is required",
        refusal,
    ]


@pytest.mark.parametrize(
    ("field", "value", "supported"),
    [
        ("completionMode", "Sorted", '"NonIndexed", "Indexed"'),
        ("completionMode", "", '"NonIndexed", "Indexed"'),
        ("podReplacementPolicy", "Never", '"Failed", "TerminatingOrFailed"'),
    ],
)
def test_enumerations_of_the_spec(field: str, value: str, supported: str) -> None:
    job = a_job()
    job["spec"][field] = value
    assert create(JOB, job)[1] == [
        f'spec.{field}: Unsupported value: "{value}": supported values: {supported}'
    ]


def test_unsupported_restart_policy_is_reported_twice() -> None:
    assert create(JOB, a_job(template=a_template(restartPolicy="X")))[1] == [
        'spec.template.spec.restartPolicy: Unsupported value: "X": supported values: "Always", '
        '"OnFailure", "Never"',
        'spec.template.spec.restartPolicy: Unsupported value: "X": supported values: "OnFailure", '
        '"Never"',
    ]


def test_dotted_names_are_for_jobs_without_indexes() -> None:
    assert create(JOB, a_job(name="a.b"))[1] == []
    assert create(JOB, a_job(name="a.b", completionMode="Indexed", completions=3))[1] == [
        'metadata.name: Invalid value: "a.b": '
        "will not able to create pod with invalid DNS label: a.b-2"
    ]
    assert create(JOB, a_job(name="a.b", completionMode="Indexed", completions=0))[1] == []
