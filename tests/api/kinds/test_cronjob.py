"""Strategy of CronJobs: validation, defaults, updates and warnings."""

from typing import Any

import pytest

from tests.api.kinds.build import a_cronjob, a_template, create, created, strategy, update

CRONJOB = strategy("cronjobs.batch")


def test_defaults() -> None:
    spec = created(CRONJOB, a_cronjob())["spec"]
    assert spec["concurrencyPolicy"] == "Allow"
    assert spec["suspend"] is False
    assert spec["successfulJobsHistoryLimit"] == 3
    assert spec["failedJobsHistoryLimit"] == 1


def test_patterns_of_the_job_template_get_their_status() -> None:
    policy = {"rules": [{"action": "Count", "onPodConditions": [{"type": "X"}]}]}
    spec = created(CRONJOB, a_cronjob(job={"podFailurePolicy": policy}))["spec"]
    rule = spec["jobTemplate"]["spec"]["podFailurePolicy"]["rules"][0]
    assert rule["onPodConditions"] == [{"type": "X", "status": "True"}]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"schedule": ""}, ["spec.schedule: Required value"]),
        (
            {"schedule": "@reboot"},
            ['spec.schedule: Invalid value: "@reboot": unrecognized descriptor: @reboot'],
        ),
        (
            {"schedule": "TZ=UTC 0 * * * *"},
            [
                'spec.schedule: Invalid value: "TZ=UTC 0 * * * *": '
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            ],
        ),
        ({"timeZone": "Europe/Rome"}, []),
        ({"timeZone": "US/Pacific"}, []),
        (
            {"timeZone": "europe/rome"},
            ['spec.timeZone: Invalid value: "europe/rome": unknown time zone europe/rome'],
        ),
        (
            {"timeZone": "../etc"},
            ['spec.timeZone: Invalid value: "../etc": unknown time zone ../etc'],
        ),
        (
            {"timeZone": "-Europe/Rome"},
            ['spec.timeZone: Invalid value: "-Europe/Rome": unknown time zone -Europe/Rome'],
        ),
        (
            {"timeZone": "Local"},
            [
                'spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone '
                "as defined in https://www.iana.org/time-zones"
            ],
        ),
        (
            {"concurrencyPolicy": "Never"},
            [
                'spec.concurrencyPolicy: Unsupported value: "Never": supported values: '
                '"Allow", "Forbid", "Replace"'
            ],
        ),
        (
            {"startingDeadlineSeconds": -1},
            ["spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0"],
        ),
    ],
)
def test_the_spec_is_validated(changes: dict[str, Any], errors: list[str]) -> None:
    assert create(CRONJOB, a_cronjob(**changes))[1] == errors


@pytest.mark.parametrize(
    ("job", "errors"),
    [
        (
            {"manualSelector": True},
            [
                "spec.jobTemplate.spec.manualSelector: Unsupported value: true: "
                'supported values: "nil", "false"'
            ],
        ),
        (
            {"selector": {"matchLabels": {"a": "b"}}},
            [
                'spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: '
                "`selector` will be auto-generated"
            ],
        ),
        (
            {"backoffSeconds": -1},
            [
                "spec.jobTemplate.spec.backoffSeconds: Invalid value: -1: "
                "must be greater than or equal to 0"
            ],
        ),
        (
            {"template": a_template(ttlSecondsAfterFinished=1)},
            [
                "spec.jobTemplate.spec.template.spec.ttlSecondsAfterFinished: Forbidden: may not "
                "be set in the pod template of a Job; set the Job's own"
            ],
        ),
    ],
)
def test_the_job_template_follows_the_rules_of_jobs(job: dict[str, Any], errors: list[str]) -> None:
    assert create(CRONJOB, a_cronjob(job=job))[1] == errors


def test_metadata_of_the_job_template_is_not_looked_at() -> None:
    cronjob = a_cronjob()
    cronjob["spec"]["jobTemplate"]["metadata"] = {"labels": {"a": "not ok"}}
    assert create(CRONJOB, cronjob)[1] == []


def test_the_name_leaves_room_for_the_names_of_jobs_on_create_only() -> None:
    long = "c" * 53
    assert create(CRONJOB, a_cronjob(name=long))[1] == [
        f'metadata.name: Invalid value: "{long}": must be no more than 52 characters'
    ]
    stored = created(CRONJOB, a_cronjob(name="c" * 52))
    stored["metadata"]["name"] = long
    assert update(CRONJOB, stored, suspend=True)[1] == []


def test_a_zone_in_a_stored_schedule_is_tolerated_but_not_next_to_a_time_zone() -> None:
    stored = created(CRONJOB, a_cronjob())
    stored["spec"]["schedule"] = "TZ=UTC 0 * * * *"
    new, errors = update(CRONJOB, stored, suspend=True)
    assert errors == []
    assert CRONJOB.warnings_on_update(new, stored) == [
        "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
        "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
    ]
    assert update(CRONJOB, stored, timeZone="Europe/Rome")[1] == [
        'spec.schedule: Invalid value: "TZ=UTC 0 * * * *": '
        "cannot use both timeZone field and TZ or CRON_TZ in schedule"
    ]


def test_a_stored_zone_that_vanished_blocks_no_other_change() -> None:
    stored = created(CRONJOB, a_cronjob())
    stored["spec"]["timeZone"] = "Nowhere/Atlantis"
    assert update(CRONJOB, stored, suspend=True)[1] == []
    assert update(CRONJOB, stored, timeZone="Nowhere/Else")[1] != []


def test_the_job_template_is_freely_mutable_and_bumps_the_generation() -> None:
    stored = created(CRONJOB, a_cronjob())
    job = {"spec": {"template": a_template(hostname="h"), "completions": 3}}
    new, errors = update(CRONJOB, stored, jobTemplate=job)
    assert errors == []
    assert new["metadata"]["generation"] == 2


def test_warnings_of_the_job_template_name_their_place() -> None:
    job = {"completionMode": "Indexed", "completions": 100001, "parallelism": 10001}
    stored = created(CRONJOB, a_cronjob(name="a.b", job=job))
    name, spec = CRONJOB.warnings_on_create(stored)
    assert name.endswith("[must not contain dots]")
    assert spec.startswith("spec.jobTemplate.spec: In Indexed Jobs with a number of completions")


@pytest.mark.parametrize(
    ("value", "policy", "texts"),
    [
        ("all", "Allow", []),
        ("all", "Forbid", []),
        ("5", "Allow", ['has no effect: the only value is "all"']),
        ("all", "Replace", ["has no effect: concurrencyPolicy Replace ends older runs"]),
    ],
)
def test_catch_up_without_effect_is_warned_about(value: str, policy: str, texts: list[str]) -> None:
    stored = created(CRONJOB, a_cronjob(concurrencyPolicy=policy))
    stored["metadata"]["annotations"] = {"onejob.dev/catch-up": value}
    prefix = "metadata.annotations[onejob.dev/catch-up]: "
    assert CRONJOB.warnings_on_create(stored) == [prefix + text for text in texts]
    assert CRONJOB.warnings_on_update(stored, stored) == [prefix + text for text in texts]


def test_the_status_of_a_cronjob_is_not_validated() -> None:
    stored = created(CRONJOB, a_cronjob())
    assert CRONJOB.validate_status_update({**stored, "status": {"active": [{}]}}, stored) == []


def test_field_selectors_know_only_the_metadata() -> None:
    assert CRONJOB.field_label_error("metadata.name") is None
    assert CRONJOB.field_label_error("spec.x") == (
        '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


def test_gated_fields_of_the_job_template_are_dropped() -> None:
    off = strategy("cronjobs.batch", JobManagedBy=False)
    assert (
        "managedBy"
        not in (created(off, a_cronjob(job={"managedBy": "a.io/b"}))["spec"]["jobTemplate"]["spec"])
    )
