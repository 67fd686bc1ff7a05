"""The official Python client against `onejob serve`, as in common scripts."""

import gc
import re
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onejob.planning.custom_resources import is_true
from tests.api.crd.build import a_definition, a_version, thing, widget
from tests.e2e.serving import GREETER, Server, a_server

kubernetes = pytest.importorskip("kubernetes", reason="the Python client is not installed")

NAMESPACE = "default"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("serve")) as server:
        yield server
        assert "Traceback" not in server.log


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[Any]:
    """Yield a client with the kubeconfig that the server wrote."""
    with kubernetes.config.new_client_from_config(str(server.kubeconfig)) as api:
        yield api
        # The client leaves its connections to the garbage collector, which complains.
        api.rest_client.pool_manager.clear()


@pytest.fixture
def batch(api: Any) -> Any:
    return kubernetes.client.BatchV1Api(api)


@pytest.fixture
def core(api: Any) -> Any:
    return kubernetes.client.CoreV1Api(api)


def a_job(name: str, command: str = "echo hello", **spec: Any) -> Any:
    """Return a Job built of the client's own types, so that its serialisation is tested too."""
    models = kubernetes.client
    container = models.V1Container(name="main", image="busybox", command=["sh", "-c", command])
    template = models.V1PodTemplateSpec(
        spec=models.V1PodSpec(restart_policy="Never", containers=[container])
    )
    return models.V1Job(
        api_version="batch/v1",
        kind="Job",
        metadata=models.V1ObjectMeta(name=name, labels={"test": name}),
        spec=models.V1JobSpec(template=template, **spec),
    )


def finished(batch: Any, name: str) -> Any:
    """Return the Job once a watch has shown its end."""
    watch = kubernetes.watch.Watch()
    for event in watch.stream(
        batch.list_namespaced_job,
        NAMESPACE,
        field_selector=f"metadata.name={name}",
        timeout_seconds=60,
    ):
        job = event["object"]
        for condition in job.status.conditions or ():
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                watch.stop()
                return job
    raise AssertionError(f"{name} did not finish in a minute")


def test_a_job_is_created_watched_to_its_end_and_read(batch: Any, core: Any) -> None:
    created = batch.create_namespaced_job(NAMESPACE, a_job("whole", completions=2, parallelism=2))
    assert created.metadata.uid
    assert created.spec.backoff_limit == 6
    job = finished(batch, "whole")
    assert (job.status.succeeded, job.status.ready, job.status.terminating) == (2, 0, 0)
    pods = core.list_namespaced_pod(NAMESPACE, label_selector="job-name=whole").items
    assert [pod.status.phase for pod in pods] == ["Succeeded"] * 2
    for pod in pods:
        assert core.read_namespaced_pod_log(pod.metadata.name, NAMESPACE) == "hello\n"
    events = core.list_namespaced_event(
        NAMESPACE, field_selector=f"involvedObject.uid={job.metadata.uid}"
    ).items
    assert {"SuccessfulCreate", "Completed"} <= {event.reason for event in events}


def test_logs_are_followed_line_by_line(batch: Any, core: Any) -> None:
    batch.create_namespaced_job(NAMESPACE, a_job("lines", "for i in 1 2 3; do echo $i; done"))
    finished(batch, "lines")
    pod = core.list_namespaced_pod(NAMESPACE, label_selector="job-name=lines").items[0]
    lines = kubernetes.watch.Watch().stream(
        core.read_namespaced_pod_log, name=pod.metadata.name, namespace=NAMESPACE
    )
    assert list(lines) == ["1", "2", "3"]


def test_patches_change_what_they_name(batch: Any) -> None:
    batch.create_namespaced_job(NAMESPACE, a_job("patched", suspend=True))
    patched = batch.patch_namespaced_job("patched", NAMESPACE, {"spec": {"parallelism": 3}})
    assert (patched.spec.parallelism, patched.spec.suspend) == (3, True)
    operations = [{"op": "replace", "path": "/spec/parallelism", "value": 2}]
    assert batch.patch_namespaced_job("patched", NAMESPACE, operations).spec.parallelism == 2
    status = {"status": {"conditions": [{"type": "Mine", "status": "True"}]}}
    written = batch.patch_namespaced_job_status("patched", NAMESPACE, status)
    assert "Mine" in {condition.type for condition in written.status.conditions}


def test_a_read_object_can_be_written_back(batch: Any) -> None:
    # With another manager, so that no controller writes to it meanwhile.
    batch.create_namespaced_job(NAMESPACE, a_job("replaced", managed_by="example.com/test"))
    job = batch.read_namespaced_job("replaced", NAMESPACE)
    job.metadata.annotations = {"note": "kept"}
    written = batch.replace_namespaced_job("replaced", NAMESPACE, job)
    assert written.metadata.annotations == {"note": "kept"}
    again = batch.replace_namespaced_job("replaced", NAMESPACE, written)
    assert again.metadata.resource_version == written.metadata.resource_version


def test_lists_come_in_pages(core: Any) -> None:
    for index in range(5):
        core.create_namespaced_config_map(
            NAMESPACE,
            {"metadata": {"name": f"page-{index}", "labels": {"paged": "yes"}}, "data": {"k": "v"}},
        )
    names: list[str] = []
    token = None
    while True:
        page = core.list_namespaced_config_map(
            NAMESPACE, label_selector="paged=yes", limit=2, _continue=token
        )
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{index}" for index in range(5)]


def test_a_watch_goes_on_from_a_list(core: Any) -> None:
    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "seen"}})
    core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"a": "b"}})
    core.delete_namespaced_config_map("seen", NAMESPACE)
    watch = kubernetes.watch.Watch()
    types = []
    for event in watch.stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=start, timeout_seconds=30
    ):
        types.append(event["type"])
        if event["type"] == "DELETED":
            watch.stop()
    assert types == ["ADDED", "MODIFIED", "DELETED"]


def test_failures_carry_a_status(batch: Any) -> None:
    with pytest.raises(kubernetes.client.ApiException) as missing:
        batch.read_namespaced_job("nobody", NAMESPACE)
    assert missing.value.status == 404
    assert 'jobs.batch \\"nobody\\" not found' in missing.value.body
    with pytest.raises(kubernetes.client.ApiException) as invalid:
        batch.create_namespaced_job(NAMESPACE, a_job("invalid", completion_mode="Sideways"))
    assert (invalid.value.status, invalid.value.reason) == (422, "Unprocessable Entity")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_a_deleted_job_takes_its_pods_along(batch: Any, core: Any, policy: str) -> None:
    name = f"deleted-{policy.lower()}"
    batch.create_namespaced_job(NAMESPACE, a_job(name))
    finished(batch, name)
    batch.delete_namespaced_job(name, NAMESPACE, propagation_policy=policy)
    deleted(core.list_namespaced_pod, f"job-name={name}")
    deleted(batch.list_namespaced_job, f"test={name}")


def deleted(list_objects: Any, label_selector: str) -> None:
    """Return once no object is left."""
    found = list_objects(NAMESPACE, label_selector=label_selector)
    left = {item.metadata.name for item in found.items}
    watch = kubernetes.watch.Watch()
    start = found.metadata.resource_version
    while left:
        for event in watch.stream(
            list_objects, NAMESPACE, resource_version=start, timeout_seconds=30
        ):
            if event["type"] == "DELETED":
                left.discard(event["object"].metadata.name)
            if not left:
                watch.stop()


def test_a_cronjob_is_run_by_hand(batch: Any) -> None:
    models = kubernetes.client
    template = a_job("unused").spec
    batch.create_namespaced_cron_job(
        NAMESPACE,
        models.V1CronJob(
            metadata=models.V1ObjectMeta(name="nightly"),
            spec=models.V1CronJobSpec(
                schedule="0 3 * * *",
                time_zone="Europe/Berlin",
                job_template=models.V1JobTemplateSpec(spec=template),
            ),
        ),
    )
    cronjob = batch.read_namespaced_cron_job("nightly", NAMESPACE)
    assert cronjob.spec.concurrency_policy == "Allow"
    job = models.V1Job(
        metadata=models.V1ObjectMeta(generate_name="nightly-"), spec=cronjob.spec.job_template.spec
    )
    name = batch.create_namespaced_job(NAMESPACE, job).metadata.name
    assert re.fullmatch("nightly-[a-z0-9]{5}", name)
    assert finished(batch, name).status.succeeded == 1


def test_the_dynamic_client_finds_its_way_by_discovery(api: Any, tmp_path: Path) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery"))
    jobs = dynamic.resources.get(api_version="batch/v1", kind="Job")
    body = api.sanitize_for_serialization(a_job("dynamic", suspend=True))
    applied = jobs.server_side_apply(
        body=body, name="dynamic", namespace=NAMESPACE, field_manager="test"
    )
    assert applied.metadata.managedFields[0].manager == "test"
    assert jobs.get(name="dynamic", namespace=NAMESPACE).spec.suspend is True
    assert {item.metadata.name for item in jobs.get(namespace=NAMESPACE).items} >= {"dynamic"}
    jobs.delete(name="dynamic", namespace=NAMESPACE)


def test_a_command_runs_in_a_container(batch: Any, core: Any) -> None:
    from kubernetes.stream import stream

    batch.create_namespaced_job(NAMESPACE, a_job("shell", "sleep 600"))
    watch = kubernetes.watch.Watch()
    for event in watch.stream(
        core.list_namespaced_pod, NAMESPACE, label_selector="job-name=shell", timeout_seconds=30
    ):
        if event["object"].status.phase == "Running":
            watch.stop()
    session = stream(
        core.connect_get_namespaced_pod_exec,
        event["object"].metadata.name,
        NAMESPACE,
        command=["sh", "-c", "echo from inside; exit 3"],
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    session.run_forever(timeout=30)
    assert session.returncode == 3
    assert session.read_all() == "from inside\n"
    # `close` leaves the socket of a connection that the server ended to the collector.
    session.sock.shutdown()
    batch.delete_namespaced_job("shell", NAMESPACE, propagation_policy="Background")


def test_who_am_i_and_what_runs_here(api: Any) -> None:
    version = kubernetes.client.VersionApi(api).get_code()
    assert version.git_version.startswith("v1.")
    review = kubernetes.client.AuthenticationV1Api(api).create_self_subject_review({})
    assert review.status.user_info.username
    groups = {group.name for group in kubernetes.client.ApisApi(api).get_api_versions().groups}
    assert "batch" in groups


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_ports_of_a_pod_are_forwarded(core: Any) -> None:
    container = {"name": "main", "image": "busybox", "command": ["python3", "-c", GREETER]}
    core.create_namespaced_pod(
        NAMESPACE,
        {
            "metadata": {"name": "greeter"},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        },
    )
    watch = kubernetes.watch.Watch()
    for event in watch.stream(
        core.list_namespaced_pod, NAMESPACE, field_selector="metadata.name=greeter"
    ):
        if event["object"].status.phase == "Running":
            watch.stop()
    log = core.read_namespaced_pod_log(
        "greeter", NAMESPACE, follow=True, limit_bytes=6, _preload_content=False
    )
    port = int(log.read())
    forward = kubernetes.stream.portforward(
        core.connect_get_namespaced_pod_portforward, "greeter", NAMESPACE, ports=f"{port},1"
    )
    connection = forward.socket(port)
    connection.setblocking(True)
    connection.settimeout(20)
    assert connection.recv(100) == b"from the pod"
    assert forward.error(port) is None
    # The client reads incoming data only during its own calls.
    for _ in range(100):
        if forward.error(1) is not None:
            break
        select.select([connection], [], [], 0.1)
    assert "listens on port 1" in (forward.error(1) or "")
    for end in (connection, forward.socket(1), log):
        end.close()
    core.delete_namespaced_pod("greeter", NAMESPACE, grace_period_seconds=0)
    # The client leaves its ends of these connections to the garbage collector.
    del connection, forward, log, end
    gc.collect()


def test_custom_resources_are_used_through_the_dynamic_client(api: Any) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(api)
    definitions = dynamic.resources.get(
        api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition"
    )
    size = {"size": {"type": "integer", "minimum": 1}}
    version = a_version(thing(size), subresources={"status": {}})
    definitions.create(body=a_definition(version))
    for event in definitions.watch(name="widgets.example.com", timeout=60):
        if is_true(event["raw_object"], "Established"):
            break
    widgets = dynamic.resources.get(api_version="example.com/v1", kind="Widget")
    widgets.create(body=widget("a", spec={"size": 1}), namespace=NAMESPACE)
    patch = {"spec": {"size": 2}}
    widgets.patch(
        name="a", namespace=NAMESPACE, body=patch, content_type="application/merge-patch+json"
    )
    assert [item.spec.size for item in widgets.get(namespace=NAMESPACE).items] == [2]
    with pytest.raises(kubernetes.client.ApiException) as refused:
        widgets.create(body=widget("b", spec={"size": 0}), namespace=NAMESPACE)
    assert refused.value.status == 422
    widgets.delete(name="a", namespace=NAMESPACE)
    definitions.delete(name="widgets.example.com")
