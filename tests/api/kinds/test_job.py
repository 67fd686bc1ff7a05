"""Strategy of Jobs: validation on create and update, fields set by the server, warnings."""

import copy
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
    update_to,
)

JOB = strategy("jobs.batch")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def test_a_new_job_gets_a_generation_a_selector_and_no_status() -> None:
    job = a_job()
    job["status"] = {"active": 3}
    stored = created(JOB, job)
    assert stored["metadata"]["generation"] == 1
    assert stored["spec"]["selector"] == {
        "matchLabels": {"batch.kubernetes.io/controller-uid": UID}
    }
    assert "status" not in stored


def test_with_a_manual_selector_nothing_is_generated() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, **a_template()}
    job = a_job(template=template, manualSelector=True, selector={"matchLabels": {"a": "b"}})
    stored = created(JOB, job)
    assert stored["spec"]["selector"] == {"matchLabels": {"a": "b"}}
    assert stored["spec"]["template"]["metadata"]["labels"] == {"a": "b"}


def test_an_empty_manual_selector_is_legal() -> None:
    assert create(JOB, a_job(manualSelector=True, selector={}))[1] == []


def test_template_defaults_match_pod_defaults() -> None:
    container = a_container(
        image="repo:5000/app",
        ports=[{"containerPort": 80}],
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        livenessProbe={"httpGet": {"port": 80}},
    )
    volumes = [{"name": "c", "configMap": {"name": "m"}}, {"name": "e"}]
    stored = created(JOB, a_job(template=a_template(containers=[container], volumes=volumes)))
    spec = stored["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["securityContext"] == {}
    assert spec["volumes"] == [
        {"name": "c", "configMap": {"name": "m", "defaultMode": 420}},
        {"name": "e", "emptyDir": {}},
    ]
    main = spec["containers"][0]
    assert main["imagePullPolicy"] == "Always"
    assert main["resources"] == {}
    assert main["terminationMessagePath"] == "/dev/termination-log"
    assert main["terminationMessagePolicy"] == "File"
    assert main["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert main["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert main["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert "enableServiceLinks" not in spec


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("registry.example:5000/busybox", "Always"),
        ("registry.example:5000/busybox:2", "IfNotPresent"),
        ("busybox@sha256:abc", "IfNotPresent"),
        ("busybox:latest@sha256:abc", "IfNotPresent"),
    ],
)
def test_only_floating_images_are_pulled_always(image: str, policy: str) -> None:
    template = a_template(containers=[a_container(image=image)])
    spec = created(JOB, a_job(template=template))["spec"]["template"]["spec"]
    assert spec["containers"][0]["imagePullPolicy"] == policy


def test_a_limit_per_index_lifts_the_limit_of_the_job() -> None:
    job = a_job(completionMode="Indexed", completions=2, backoffLimitPerIndex=1)
    assert created(JOB, job)["spec"]["backoffLimit"] == 2147483647
    assert created(JOB, a_job())["spec"]["backoffLimit"] == 6


def test_defaulting_twice_changes_nothing() -> None:
    once = created(JOB, a_job())
    twice = {**once}
    JOB.default(twice)
    assert twice == once


@pytest.mark.parametrize(
    ("metadata", "errors"),
    [
        (
            {"name": "", "generateName": ""},
            ["metadata.name: Required value: name or generateName is required"],
        ),
        ({"name": "a_b"}, [f'metadata.name: Invalid value: "a_b": {SUBDOMAIN_TEXT}']),
        ({"name": "a.b"}, []),
        (
            {"finalizers": ["tidy"]},
            [
                'metadata.finalizers[0]: Invalid value: "tidy": name is neither a standard '
                "finalizer name nor is it fully qualified"
            ],
        ),
        ({"finalizers": ["example.com/tidy", "orphan"]}, []),
        (
            {"ownerReferences": [{"apiVersion": "v1"}]},
            [
                "metadata.ownerReferences[0].kind: Required value: must not be empty",
                "metadata.ownerReferences[0].name: Required value: must not be empty",
                "metadata.ownerReferences[0].uid: Required value: must not be empty",
            ],
        ),
        (
            {"annotations": {"not ok": ""}},
            [
                'metadata.annotations: Invalid value: "not ok": name part must consist of '
                "alphanumeric characters, '-', '_' or '.', and must start and end with an "
                "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used "
                "for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ],
        ),
        (
            {"annotations": {"big": "x" * (256 * 1024)}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
    ],
)
def test_metadata_is_validated(metadata: dict[str, Any], errors: list[str]) -> None:
    job = a_job(template={"metadata": {"labels": {"a": "b"}}, **a_template()})
    job["metadata"] |= metadata
    job["spec"] |= {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}
    assert create(JOB, job)[1] == errors


def test_only_one_owner_may_be_the_controller() -> None:
    job = a_job()
    owner = {"apiVersion": "v1", "kind": "K", "uid": "u", "controller": True}
    job["metadata"]["ownerReferences"] = [{**owner, "name": "a"}, {**owner, "name": "b"}]
    (error,) = create(JOB, job)[1]
    assert error.startswith("metadata.ownerReferences: Invalid value: [")
    assert error.endswith(
        "Only one reference can have Controller set to true. "
        'Found "true" in references for K/a and K/b'
    )


PATH_PATTERN = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


@pytest.mark.parametrize(
    ("manager", "errors"),
    [
        ("kubernetes.io/job-controller", []),
        ("example.com/a/b%20", []),
        ("", ["Required value"]),
        ("x" * 59 + ".io/", [f'Invalid value: "{"x" * 59}.io/": must be a domain-prefixed path'
                             ' (such as "acme.io/foo")']),
        ("nothing", ['Invalid value: "nothing": must be a domain-prefixed path '
                     '(such as "acme.io/foo")']),
        ("/x", ['Invalid value: "/x": must be a domain-prefixed path (such as "acme.io/foo")']),
        ("UP.io/x", [f'Invalid value: "UP.io": {SUBDOMAIN_TEXT}']),
        ("a.io/x y", ['Invalid value: "x y": Invalid path '
                      f"(regex used for validation is '{PATH_PATTERN}')"]),
        ("a.io/" + "x" * 58, []),
        ("a.io/" + "x" * 59, ["Too long: may not be more than 63 bytes"]),
    ],
)  # fmt: skip
def test_managed_by_is_a_domain_prefixed_path(manager: str, errors: list[str]) -> None:
    found = create(JOB, a_job(managedBy=manager))[1]
    assert found == [f"spec.managedBy: {error}" for error in errors]


@pytest.mark.parametrize(
    ("template", "errors"),
    [
        (
            {},
            [
                "spec.template.spec.containers: Required value",
                'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", '
                '"Never"',
            ],
        ),
        (
            a_template(restartPolicy="Always"),
            [
                'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", '
                '"Never"'
            ],
        ),
        (
            a_template(ephemeralContainers=[{"name": "e"}]),
            [
                "spec.template.spec.ephemeralContainers: Forbidden: "
                "ephemeral containers not allowed in pod template"
            ],
        ),
        (
            a_template(ttlSecondsAfterFinished=5),
            [
                "spec.template.spec.ttlSecondsAfterFinished: Forbidden: may not be set in the "
                "pod template of a Job; set the Job's own"
            ],
        ),
        (a_template(terminationGracePeriodSeconds=-1), []),
    ],
)
def test_the_template_must_suit_a_job(template: dict[str, Any], errors: list[str]) -> None:
    assert create(JOB, a_job(template=template))[1] == errors


TTL_ANNOTATION = {"metadata": {"annotations": {"onejob.dev/ttl-seconds-after-finished": "5"}}}
TTL_REFUSED = (
    "template.metadata.annotations[onejob.dev/ttl-seconds-after-finished]: Forbidden: may not be "
    "set in the pod template of a Job; set the Job's own"
)


def test_the_annotation_that_stands_for_a_pods_ttl_is_refused_in_a_template_as_the_field_is() -> (
    None
):
    """Its Pods would be deleted before they are counted, where finalizers do not prevent that."""
    template = {**a_template(), **TTL_ANNOTATION}
    assert create(JOB, a_job(template=template))[1] == [f"spec.{TTL_REFUSED}"]
    cronjob = a_cronjob(job={"template": template})
    assert create(strategy("cronjobs.batch"), cronjob)[1] == [
        f"spec.jobTemplate.spec.{TTL_REFUSED}"
    ]


def test_that_annotation_cannot_be_added_later() -> None:
    suspended = created(JOB, a_job(suspend=True))
    added = copy.deepcopy(suspended["spec"]["template"])
    added["metadata"]["annotations"] = TTL_ANNOTATION["metadata"]["annotations"]
    assert f"spec.{TTL_REFUSED}" in update(JOB, suspended, template=added)[1]
    cronjobs = strategy("cronjobs.batch")
    job_template = {"spec": {"template": {**a_template(), **TTL_ANNOTATION}}}
    errors = update(cronjobs, created(cronjobs, a_cronjob()), jobTemplate=job_template)[1]
    assert errors == [f"spec.jobTemplate.spec.{TTL_REFUSED}"]


def test_a_stored_job_or_cronjob_with_that_annotation_may_still_be_changed() -> None:
    """Earlier versions accepted it."""
    job = created(JOB, a_job())
    job["spec"]["template"]["metadata"]["annotations"] = TTL_ANNOTATION["metadata"]["annotations"]
    assert update(JOB, job, parallelism=2)[1] == []
    cronjobs = strategy("cronjobs.batch")
    cronjob = created(cronjobs, a_cronjob())
    cronjob["spec"]["jobTemplate"]["spec"]["template"].update(TTL_ANNOTATION)
    assert update(cronjobs, cronjob, suspend=True)[1] == []


FACTOR = "onejob.dev/oom-memory-factor"
BAD_FACTOR = (
    f'metadata.annotations[{FACTOR}]: Invalid value: "{{}}": must be a number above 1 and up to '
    '100 with at most three decimals, such as "1.5"'
)


@pytest.mark.parametrize("value", ["1", "0.5", "-2", "100.5", "two", "", "1.5555", "1e3", "٢"])
def test_a_factor_for_memory_is_a_number_above_one(value: str) -> None:
    job = a_job()
    job["metadata"]["annotations"] = {FACTOR: value}
    assert create(JOB, job)[1] == [BAD_FACTOR.format(value)]


def test_memory_maximum_must_be_quantity_unless_already_stored() -> None:
    job = a_job()
    job["metadata"]["annotations"] = {FACTOR: "1.5", "onejob.dev/oom-memory-max": "8 GB"}
    ((error),) = create(JOB, job)[1]
    assert error.startswith("metadata.annotations[onejob.dev/oom-memory-max]: Invalid value: ")
    job["metadata"]["annotations"]["onejob.dev/oom-memory-max"] = "8Gi"
    stored = created(JOB, job)
    stored["metadata"]["annotations"][FACTOR] = "nonsense"
    assert update(JOB, stored, parallelism=2)[1] == []


def test_memory_grows_only_where_pods_are_replaced() -> None:
    cronjob = a_cronjob(job={"template": a_template(restartPolicy="OnFailure")})
    cronjob["spec"]["jobTemplate"]["metadata"] = {"annotations": {FACTOR: "2"}}
    assert create(strategy("cronjobs.batch"), cronjob)[1] == [
        f"spec.jobTemplate.metadata.annotations[{FACTOR}]: Forbidden: restartPolicy OnFailure "
        "restarts containers in their Pod, which cannot get more memory: use Never"
    ]


def test_a_selector_of_the_users_own_must_fit_the_generated_labels() -> None:
    _, errors = create(JOB, a_job(selector={"matchLabels": {"a": "b"}}))
    assert [error.split(": ")[0] for error in errors] == [
        "spec.selector",
        "spec.template.metadata.labels",
    ]
    assert create(JOB, a_job(selector={"matchLabels": {"job-name": "j"}}))[1] == []


def test_an_unknown_operator_in_the_selector_is_named() -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    _, errors = create(JOB, a_job(selector=selector, manualSelector=True))
    assert errors == [
        'spec.selector.matchExpressions[0].operator: Invalid value: "Near": '
        "not a valid selector operator"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"parallelism": 7},
        {"suspend": True},
        {"activeDeadlineSeconds": 9},
        {"backoffLimit": 0},
        {"ttlSecondsAfterFinished": 0},
        {"podReplacementPolicy": "Failed"},
        {"manualSelector": True},
        {"backoffSeconds": 1},
        {"failedPodsLimit": 1},
    ],
)
def test_mutable_field_change_increments_generation(changes: dict[str, Any]) -> None:
    job = created(JOB, a_job())
    new, errors = update(JOB, job, **changes)
    assert errors == []
    assert new["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"completions": 2}, ["spec.completions: Invalid value: 2: field is immutable"]),
        ({"managedBy": "a.io/b"}, ['spec.managedBy: Invalid value: "a.io/b": field is immutable']),
        (
            {"selector": None},
            [
                "spec.selector: Required value",
                "spec.template.metadata.labels",
                "spec.selector: Invalid value: null: field is immutable",
            ],
        ),
    ],
)
def test_immutable_field_change_is_rejected(changes: dict[str, Any], errors: list[str]) -> None:
    _, found = update(JOB, created(JOB, a_job()), **changes)
    assert len(found) == len(errors)
    for text, start in zip(found, errors, strict=True):
        assert text.startswith(start)


def test_rewriting_a_job_as_go_clients_do_is_no_change() -> None:
    container = a_container(
        resources={"requests": {"cpu": "0.5", "memory": "1Gi"}},
        stdin=False,
        livenessProbe={"exec": {"command": ["true"]}, "initialDelaySeconds": 0},
        env=[{"name": "A", "value": ""}],
    )
    job = created(JOB, a_job(template=a_template(hostNetwork=False, containers=[container])))
    rewritten = {
        "name": "main",
        "image": "busybox:1",
        "resources": {"requests": {"cpu": "500m", "memory": "1024Mi"}},
        "livenessProbe": {"exec": {"command": ["true"]}},
        "env": [{"name": "A"}],
        "volumeMounts": [],
    }
    template = {
        "metadata": job["spec"]["template"]["metadata"],
        "spec": {"restartPolicy": "Never", "containers": [rewritten], "volumes": []},
    }
    new, errors = update(JOB, job, template=template)
    assert errors == []
    assert new["metadata"]["generation"] == 1


def test_removing_parallelism_gives_one() -> None:
    job = created(JOB, a_job(parallelism=4, completions=4))
    assert update(JOB, job, parallelism=None)[0]["spec"]["parallelism"] == 1


def test_an_update_keeps_the_status_and_metadata_only_changes_keep_the_generation() -> None:
    job = {**created(JOB, a_job()), "status": {"active": 1}}
    new = {**job, "metadata": {**job["metadata"], "labels": {"x": "y"}}, "status": {"active": 9}}
    result, errors = update_to(JOB, job, new)
    assert errors == []
    assert result["status"] == {"active": 1}
    assert result["metadata"]["generation"] == 1


def test_a_status_write_changes_metadata_but_not_the_spec() -> None:
    job = created(JOB, a_job())
    new: dict[str, Any] = {
        "metadata": {**job["metadata"], "annotations": {"a": "b"}},
        "spec": {},
        "status": {"active": 1},
    }
    JOB.prepare_status_update(new, job)
    assert new["spec"] == job["spec"]
    assert new["metadata"]["annotations"] == {"a": "b"}
    assert new["status"] == {"active": 1}


def test_the_time_of_a_heartbeat_is_the_time_of_a_probe() -> None:
    job = created(JOB, a_job())
    at = "2026-01-01T12:00:00Z"
    job["status"] = {"conditions": [{"type": "X", "status": "True", "lastHeartbeatTime": at}]}
    JOB.default(job)
    assert job["status"]["conditions"] == [{"type": "X", "status": "True", "lastProbeTime": at}]


# --- gates ------------------------------------------------------------------------------------


def test_without_its_gate_managed_by_is_dropped_but_kept_where_it_is_stored() -> None:
    off = strategy("jobs.batch", JobManagedBy=False)
    assert "managedBy" not in created(off, a_job(managedBy="a.io/b"))["spec"]
    stored = created(JOB, a_job(managedBy="a.io/b"))
    new, errors = update(off, stored, parallelism=2)
    assert errors == []
    assert new["spec"]["managedBy"] == "a.io/b"


def test_without_its_gate_a_ttl_is_dropped_unless_it_is_stored() -> None:
    off = strategy("jobs.batch", TTLAfterFinished=False)
    assert "ttlSecondsAfterFinished" not in created(off, a_job(ttlSecondsAfterFinished=1))["spec"]
    without = created(off, a_job())
    assert (
        "ttlSecondsAfterFinished" not in update(off, without, ttlSecondsAfterFinished=1)[0]["spec"]
    )
    stored = created(JOB, a_job(ttlSecondsAfterFinished=1))
    assert update(off, stored, ttlSecondsAfterFinished=2)[0]["spec"]["ttlSecondsAfterFinished"] == 2


def test_gang_scheduling_is_dropped() -> None:
    assert "scheduling" not in created(JOB, a_job(scheduling={"policy": {}}))["spec"]


def test_status_rules_beyond_the_basic_ones_need_the_managed_by_gate() -> None:
    job = created(JOB, a_job())
    off = strategy("jobs.batch", JobManagedBy=False)
    bad = {**job, "status": {"ready": 2}}
    assert JOB.validate_status_update(bad, job)
    assert off.validate_status_update(bad, job) == []


KEY = "batch.kubernetes.io/job-tracking"


def test_in_annotation_mode_new_jobs_are_marked_as_tracked() -> None:
    on = strategy("jobs.batch", JobTrackingAnnotation=True)
    assert created(on, a_job())["metadata"]["annotations"] == {KEY: ""}
    assert "annotations" not in created(JOB, a_job())["metadata"]


def test_in_annotation_mode_without_tracking_the_mark_is_stripped() -> None:
    off = strategy("jobs.batch", JobTrackingAnnotation=True, JobTrackingWithFinalizers=False)
    job = a_job()
    job["metadata"]["annotations"] = {
        KEY: "",
        "batch.kubernetes.io/job-completion": "",
        "mine": "kept",
    }
    assert created(off, job)["metadata"]["annotations"] == {"mine": "kept"}


def test_in_annotation_mode_the_mark_may_stay_but_not_be_added() -> None:
    on = strategy("jobs.batch", JobTrackingAnnotation=True)
    marked = created(on, a_job())
    assert update(on, marked, parallelism=2)[1] == []
    unmarked = created(JOB, a_job())
    new = {**unmarked, "metadata": {**unmarked["metadata"], "annotations": {KEY: ""}}}
    assert update_to(on, unmarked, new)[1] == [
        f"metadata.annotations[{KEY}]: Forbidden: cannot add this annotation"
    ]
    assert update_to(JOB, unmarked, new)[1] == []


@pytest.mark.parametrize(
    ("gate", "status", "allowed"),
    [
        (True, {"startTime": "2026-01-01T12:00:00Z", "conditions": [
            {"type": "Suspended", "status": "True"}]}, True),
        (False, {"startTime": "2026-01-01T12:00:00Z", "conditions": [
            {"type": "Suspended", "status": "True"}]}, False),
        (False, {}, True),
    ],
)  # fmt: skip
def test_without_its_gate_scheduling_is_open_only_before_the_first_start(
    gate: bool, status: dict[str, Any], allowed: bool
) -> None:
    kind = strategy("jobs.batch", MutableSchedulingDirectivesForSuspendedJobs=gate)
    job = {**created(kind, a_job(suspend=True)), "status": status}
    template = job["spec"]["template"]
    moved = {**template, "spec": {**template["spec"], "nodeSelector": {"a": "b"}}}
    assert (update(kind, job, template=moved)[1] == []) is allowed


# --- warnings ---------------------------------------------------------------------------------


def test_warnings_name_accepted_but_suspicious_fields() -> None:
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    extends = [{"name": "P", "value": "1"}, {"name": "P", "value": "$(P):2"}]
    template = a_template(
        restartPolicy="OnFailure",
        containers=[a_container(env=twice), a_container(name="b", env=extends)],
        imagePullSecrets=[{}],
    )
    job = a_job(name="a.b", template=template, backoffSeconds=1, failedPodsLimit=1)
    assert JOB.warnings_on_create(created(JOB, job)) == [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising "
        "behavior; a DNS label is recommended: [must not contain dots]",
        'spec.backoffSeconds: ignored unless the restartPolicy of the pod template is "Never"',
        'spec.failedPodsLimit: ignored unless the restartPolicy of the pod template is "Never"',
        'spec.template.spec.imagePullSecrets[0].name: invalid empty name ""',
        'spec.template.spec.containers[0].env[1]: hides previous definition of "A", '
        "which may be dropped when using apply",
    ]


def test_an_update_warns_only_if_the_generation_changed() -> None:
    job = created(JOB, a_job(template=a_template(imagePullSecrets=[{}])))
    same, _ = update(JOB, job)
    assert JOB.warnings_on_update(same, job) == []
    changed, _ = update(JOB, job, parallelism=2)
    assert JOB.warnings_on_update(changed, job) == [
        'spec.template.spec.imagePullSecrets[0].name: invalid empty name ""'
    ]


# --- selecting and deleting -------------------------------------------------------------------


def test_jobs_are_selected_by_how_many_succeeded() -> None:
    assert JOB.selectable_fields({"status": {"succeeded": 3}}) == {"status.successful": "3"}
    assert JOB.selectable_fields({}) == {"status.successful": "0"}
    assert JOB.field_label_error("status.successful") is None
    assert JOB.field_label_error("spec.x") == 'field label "spec.x" not supported for Job'


def test_job_deletion_orphans_pods_by_default() -> None:
    assert JOB.default_propagation == "Orphan"
    assert strategy("cronjobs.batch").default_propagation == "Background"
    assert JOB.deletion_grace_seconds(a_job(), 30) == 0


def test_both_kinds_of_jobs_accept_unconditional_updates() -> None:
    assert JOB.unconditional_update
    assert strategy("cronjobs.batch").unconditional_update
    assert create(strategy("cronjobs.batch"), a_cronjob())[1] == []
