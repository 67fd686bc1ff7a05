"""Creation of Jobs: defaults, stored form and refusals."""

from typing import Any

from tests.build import a_cronjob
from tests.differential.documents import CONTAINER, indexed, job
from tests.differential.registry import scenario
from tests.differential.side import Side


@scenario
async def defaults_of_a_small_job(it: Side) -> None:
    await it.create("jobs", job(suspend=True), whole=True)


@scenario
async def defaults_of_an_indexed_job(it: Side) -> None:
    await it.create("jobs", {**indexed(3, 2, suspend=True, backoffLimitPerIndex=1)}, whole=True)


@scenario
async def defaults_with_a_pod_failure_policy(it: Side) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    await it.create("jobs", job(suspend=True, podFailurePolicy={"rules": [rule]}), whole=True)


@scenario
async def parallelism_without_completions(it: Side) -> None:
    await it.create("jobs", job(parallelism=3, suspend=True), whole=True)


@scenario
async def labels_come_from_the_template(it: Side) -> None:
    document = job(suspend=True)
    document["spec"]["template"]["metadata"] = {"labels": {"app": "x"}, "annotations": {"a": "b"}}
    await it.create("jobs", document, whole=True)


@scenario
async def a_generated_name(it: Side) -> None:
    document = job(suspend=True)
    document["metadata"] = {"generateName": "made-"}
    created = await it.create("jobs", document)
    it.show("length", len(created["metadata"]["name"]))


@scenario
async def a_selector_of_ones_own(it: Side) -> None:
    document = job(manualSelector=True, selector={"matchLabels": {"a": "b"}}, suspend=True)
    document["spec"]["template"]["metadata"] = {"labels": {"a": "b"}}
    await it.create("jobs", document, whole=True)


@scenario
async def a_selector_without_saying_so(it: Side) -> None:
    document = job(selector={"matchLabels": {"a": "b"}})
    document["spec"]["template"]["metadata"] = {"labels": {"a": "b"}}
    await it.create("jobs", document)


@scenario
async def a_manual_selector_that_does_not_match(it: Side) -> None:
    await it.create("jobs", job(manualSelector=True, selector={"matchLabels": {"a": "b"}}))


@scenario
async def numbers_out_of_range(it: Side) -> None:
    await it.create(
        "jobs",
        job(
            parallelism=-1,
            completions=-2,
            backoffLimit=-3,
            activeDeadlineSeconds=-4,
            ttlSecondsAfterFinished=-5,
        ),
    )


@scenario
async def restart_policies_that_are_refused(it: Side) -> None:
    for restart in ("Always", "Sometimes", ""):
        await it.create("jobs", job(restart=restart))


@scenario
async def an_empty_template(it: Side) -> None:
    await it.create("jobs", {**job(), "spec": {"template": {"spec": {}}}})
    await it.create("jobs", {**job(), "spec": {}})


@scenario
async def bad_names(it: Side) -> None:
    for name in ("Upper", "a" * 64, "under_score", "-dash", "a" * 254):
        await it.create("jobs", job(name, suspend=True))


@scenario
async def an_indexed_job_without_completions(it: Side) -> None:
    document = indexed(1)
    del document["spec"]["completions"]
    await it.create("jobs", document)


@scenario
async def an_indexed_job_of_too_many(it: Side) -> None:
    await it.create("jobs", indexed(200_000, 200_000))
    await it.create("jobs", indexed(1_000_001, 10, backoffLimitPerIndex=1))


@scenario
async def an_indexed_name_that_is_too_long_for_its_hosts(it: Side) -> None:
    document = indexed(100)
    document["metadata"]["name"] = "n" * 62
    await it.create("jobs", document)


@scenario
async def fields_of_indexed_jobs_on_others(it: Side) -> None:
    await it.create("jobs", job(backoffLimitPerIndex=1))
    await it.create("jobs", job(maxFailedIndexes=1))
    await it.create("jobs", job(successPolicy={"rules": [{"succeededCount": 1}]}))


@scenario
async def an_unknown_completion_mode(it: Side) -> None:
    await it.create("jobs", job(completionMode="Sorted"))


@scenario
async def a_bad_pod_failure_policy(it: Side) -> None:
    for rule in (
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}},
        {"action": "Explode", "onExitCodes": {"operator": "In", "values": [1]}},
        {"action": "Ignore"},
        {"action": "Count", "onExitCodes": {"operator": "Between", "values": [1]}},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [0]}},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [3, 2, 3]}},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": []}},
        {
            "action": "Count",
            "onExitCodes": {"operator": "In", "values": [1], "containerName": "other"},
        },
        {"action": "Count", "onPodConditions": [{"type": "", "status": "Maybe"}]},
        {
            "action": "Count",
            "onExitCodes": {"operator": "In", "values": [1]},
            "onPodConditions": [{"type": "A"}],
        },
    ):
        await it.create("jobs", job(podFailurePolicy={"rules": [rule]}))


@scenario
async def a_pod_failure_policy_with_restarts(it: Side) -> None:
    rule = {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}
    await it.create("jobs", job(restart="OnFailure", podFailurePolicy={"rules": [rule]}))


@scenario
async def a_replacement_policy_against_the_failure_policy(it: Side) -> None:
    rule = {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}
    policy = {"rules": [rule]}
    await it.create(
        "jobs", job(podFailurePolicy=policy, podReplacementPolicy="TerminatingOrFailed")
    )
    await it.create("jobs", job(podReplacementPolicy="Whenever"))


@scenario
async def a_bad_success_policy(it: Side) -> None:
    all_rules: list[list[dict[str, Any]]] = [
        [],
        [{}],
        [{"succeededIndexes": "0-9"}],
        [{"succeededIndexes": "2,1"}],
        [{"succeededIndexes": "0,x"}],
        [{"succeededCount": 9}],
        [{"succeededCount": -1}],
        [{"succeededIndexes": "0-1", "succeededCount": 3}],
    ]
    for rules in all_rules:
        await it.create("jobs", indexed(3, successPolicy={"rules": rules}))


@scenario
async def bad_values_of_managed_by(it: Side) -> None:
    for manager in ("", "plain", "a.b/", "a.b/c/d", "a" * 60 + ".b/c", "kubernetes.io/other"):
        await it.create("jobs", job(managedBy=manager, suspend=True))


@scenario
async def fields_that_nobody_knows(it: Side) -> None:
    document = job(suspend=True, paralelism=3)
    path = it.path("jobs")
    for level in ("Warn", "Ignore", "Strict", "Perhaps"):
        document["metadata"]["name"] = level.lower()
        await it.ask("POST", path, document, query={"fieldValidation": level})


@scenario
async def values_of_the_wrong_type(it: Side) -> None:
    await it.create("jobs", job(parallelism="three"))
    await it.create("jobs", job(completions=1.5))
    await it.create("jobs", job(suspend="yes"))
    await it.create("jobs", job(template=[]))
    await it.create("jobs", job(activeDeadlineSeconds=99999999999999999999))


@scenario
async def bodies_that_are_no_documents(it: Side) -> None:
    path = it.path("jobs")
    for body in (b"{", b"[]", b'"job"', b"null", b"{}"):
        await it.ask("POST", path, body)


@scenario
async def another_kind_than_the_path_says(it: Side) -> None:
    await it.ask("POST", it.path("jobs"), a_cronjob())
    await it.ask("POST", it.path("jobs"), {**job(), "apiVersion": "batch/v2"})


@scenario
async def another_namespace_than_the_path_says(it: Side) -> None:
    document = job()
    document["metadata"]["namespace"] = "elsewhere"
    await it.create("jobs", document)


@scenario
async def a_namespace_that_is_not_there(it: Side) -> None:
    await it.ask("POST", "/apis/batch/v1/namespaces/nowhere/jobs", job())


@scenario
async def a_name_that_is_taken(it: Side) -> None:
    await it.create("jobs", job(suspend=True))
    await it.create("jobs", job(suspend=True))


@scenario
async def a_dry_run(it: Side) -> None:
    await it.ask("POST", it.path("jobs"), job(), query={"dryRun": "All"}, whole=True)
    await it.ask("POST", it.path("jobs"), job(), query={"dryRun": "Some"})
    await it.ask("GET", it.path("jobs", "j"))


@scenario
async def bad_containers(it: Side) -> None:
    for containers in (
        [],
        [{"name": "c"}],
        [{"image": "busybox"}],
        [CONTAINER, CONTAINER],
        [{**CONTAINER, "imagePullPolicy": "Now"}],
        [{**CONTAINER, "env": [{"name": "a=b", "value": "1"}]}],
        [{**CONTAINER, "volumeMounts": [{"name": "absent", "mountPath": "/x"}]}],
        [{**CONTAINER, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}],
        [{**CONTAINER, "resources": {"limits": {"memory": "much"}}}],
    ):
        await it.create("jobs", job(pod={"containers": containers}, suspend=True))


@scenario
async def bad_labels_and_annotations(it: Side) -> None:
    document = job(suspend=True)
    document["metadata"]["labels"] = {"bad key": "x", "k": "bad value!"}
    document["metadata"]["annotations"] = {"/x": "y"}
    await it.create("jobs", document)
    document = job(suspend=True)
    document["spec"]["template"]["metadata"] = {"labels": {"a b": "c d"}}
    await it.create("jobs", document)


@scenario
async def generated_labels_that_are_given(it: Side) -> None:
    document = job(suspend=True)
    document["spec"]["template"]["metadata"] = {
        "labels": {"batch.kubernetes.io/job-name": "other", "controller-uid": "mine"}
    }
    await it.create("jobs", document)


@scenario
async def a_bad_cronjob(it: Side) -> None:
    specs: list[dict[str, Any]] = [
        {"schedule": ""},
        {"schedule": "61 * * * *"},
        {"schedule": "* * * *"},
        {"schedule": "TZ=UTC * * * * *"},
        {"schedule": "CRON_TZ=UTC * * * * *"},
        {"timeZone": "Nowhere/Town"},
        {"timeZone": ""},
        {"timeZone": "Local"},
        {"concurrencyPolicy": "Never"},
        {"startingDeadlineSeconds": -1},
        {"successfulJobsHistoryLimit": -1, "failedJobsHistoryLimit": -1},
    ]
    for spec in specs:
        await it.create("cronjobs", a_cronjob(**{"suspend": True, **spec}))
    await it.create("cronjobs", a_cronjob("n" * 53, suspend=True))


@scenario
async def defaults_of_a_cronjob(it: Side) -> None:
    await it.create("cronjobs", a_cronjob(suspend=True), whole=True)
