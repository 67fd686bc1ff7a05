"""Table output: every column of every kind, and durations at every boundary."""

from datetime import timedelta
from typing import Any

import pytest

from onejob.api.kinds.printing import human_duration, selector_text
from onejob.virtual_time import NOON
from tests.api.kinds.build import strategy

MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY


def ago(seconds: float) -> str:
    return (NOON - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (0.9, "0s"),
        (1, "1s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 1, "2m1s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE, "10m"),
        (10 * MINUTE + 59, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR, "8y"),
        (20 * YEAR + 3 * DAY, "20y"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def row(resource: str, doc: dict[str, Any], **gates: bool) -> dict[str, Any]:
    """Return cells by column name, in order; wide columns are marked."""
    kind = strategy(resource, **gates)
    names = [c["name"] + (" (wide)" if c["priority"] else "") for c in kind.columns()]
    return dict(zip(names, kind.cells(doc, NOON), strict=True))


def titles(resource: str) -> list[tuple[str, str, int]]:
    return [(c["name"], c["type"], c["priority"]) for c in strategy(resource).columns()]


def named(name: str = "x", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "creationTimestamp": ago(90), **metadata}


# --- jobs -------------------------------------------------------------------------------------


def test_columns_of_jobs() -> None:
    assert titles("jobs.batch") == [
        ("Name", "string", 0),
        ("Status", "string", 0),
        ("Completions", "string", 0),
        ("Duration", "string", 0),
        ("Age", "string", 0),
        ("Containers", "string", 1),
        ("Images", "string", 1),
        ("Selector", "string", 1),
    ]
    assert strategy("jobs.batch").columns()[0]["format"] == "name"


def test_a_row_of_a_job() -> None:
    doc = {
        "metadata": named("j"),
        "spec": {
            "completions": 3,
            "parallelism": 2,
            "selector": {"matchLabels": {"b": "2", "a": "1"}},
            "template": {
                "spec": {
                    "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "k"}],
                    "initContainers": [{"name": "n", "image": "o"}],
                }
            },
        },
        "status": {"succeeded": 1, "startTime": ago(65)},
    }
    assert row("jobs.batch", doc) == {
        "Name": "j",
        "Status": "Running",
        "Completions": "1/3",
        "Duration": "65s",
        "Age": "90s",
        "Containers (wide)": "c,d",
        "Images (wide)": "i,k",
        "Selector (wide)": "a=1,b=2",
    }


@pytest.mark.parametrize(
    ("conditions", "deleting", "status"),
    [
        ([], False, "Running"),
        (["Complete", "SuccessCriteriaMet"], False, "Complete"),
        (["Failed", "FailureTarget"], False, "Failed"),
        (["Complete"], True, "Complete"),
        (["Suspended"], True, "Terminating"),
        (["Suspended"], False, "Suspended"),
        (["FailureTarget", "Suspended"], False, "Suspended"),
        (["FailureTarget"], False, "FailureTarget"),
        (["SuccessCriteriaMet"], False, "SuccessCriteriaMet"),
    ],
)
def test_63_the_status_of_a_job_is_the_first_that_holds(
    conditions: list[str], deleting: bool, status: str
) -> None:
    doc = {
        "metadata": named(**({"deletionTimestamp": ago(1)} if deleting else {})),
        "spec": {"parallelism": 0},
        "status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]},
    }
    assert row("jobs.batch", doc)["Status"] == status


def test_false_conditions_are_not_printed() -> None:
    status = {"conditions": [{"type": "Complete", "status": "False"}]}
    assert row("jobs.batch", {"metadata": named(), "status": status})["Status"] == "Running"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"completions": 5, "parallelism": 2}, "2/5"),
        ({"completions": 0}, "2/0"),
        ({"parallelism": 3}, "2/1 of 3"),
        ({"parallelism": 1}, "2/1"),
        ({}, "2/1"),
    ],
)
def test_completions_of_a_job(spec: dict[str, Any], text: str) -> None:
    doc = {"metadata": named(), "spec": spec, "status": {"succeeded": 2}}
    assert row("jobs.batch", doc)["Completions"] == text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({}, ""),
        ({"startTime": ago(30)}, "30s"),
        ({"startTime": ago(30), "completionTime": ago(20)}, "10s"),
        # Failed Jobs have no completionTime: upstream lets them grow.
        ({"startTime": ago(30), "conditions": [{"type": "Failed", "status": "True"}]}, "30s"),
    ],
)
def test_63_duration_of_a_job(status: dict[str, Any], text: str) -> None:
    assert row("jobs.batch", {"metadata": named(), "status": status})["Duration"] == text


def test_the_manager_of_a_job_is_a_column_on_demand() -> None:
    doc = {"metadata": named(), "spec": {"managedBy": "a.io/b"}}
    assert "Managed By (wide)" not in row("jobs.batch", doc)
    shown = row("jobs.batch", doc, JobManagedByColumn=True)
    assert list(shown)[-1] == "Managed By (wide)"
    assert shown["Managed By (wide)"] == "a.io/b"
    assert row("jobs.batch", {"metadata": named()}, JobManagedByColumn=True)[
        "Managed By (wide)"
    ] == "<none>"  # fmt: skip


def test_age_without_creation_time_is_unknown() -> None:
    assert row("jobs.batch", {"metadata": {"name": "j"}})["Age"] == "<unknown>"


# --- cronjobs ---------------------------------------------------------------------------------


def test_columns_of_cronjobs() -> None:
    assert titles("cronjobs.batch") == [
        ("Name", "string", 0),
        ("Schedule", "string", 0),
        ("Timezone", "string", 0),
        ("Suspend", "boolean", 0),
        ("Active", "integer", 0),
        ("Last Schedule", "string", 0),
        ("Age", "string", 0),
        ("Containers", "string", 1),
        ("Images", "string", 1),
        ("Selector", "string", 1),
    ]


def test_rows_of_cronjobs() -> None:
    containers = [{"name": "c", "image": "i"}]
    doc = {
        "metadata": named("c"),
        "spec": {
            "schedule": "@hourly",
            "timeZone": "Europe/Rome",
            "suspend": True,
            "jobTemplate": {"spec": {"template": {"spec": {"containers": containers}}}},
        },
        "status": {"active": [{}, {}], "lastScheduleTime": ago(300)},
    }
    assert row("cronjobs.batch", doc) == {
        "Name": "c",
        "Schedule": "@hourly",
        "Timezone": "Europe/Rome",
        "Suspend": "True",
        "Active": 2,
        "Last Schedule": "5m",
        "Age": "90s",
        "Containers (wide)": "c",
        "Images (wide)": "i",
        "Selector (wide)": "<none>",
    }
    bare = row("cronjobs.batch", {"metadata": named(), "spec": {"schedule": "@daily"}})
    assert bare["Timezone"] == "<none>"
    assert bare["Suspend"] == "<unset>"
    assert bare["Active"] == 0
    assert bare["Last Schedule"] == "<none>"
    unsuspended = {"metadata": named(), "spec": {"suspend": False}}
    assert row("cronjobs.batch", unsuspended)["Suspend"] == "False"


# --- pods -------------------------------------------------------------------------------------


def test_columns_of_pods() -> None:
    assert titles("pods") == [
        ("Name", "string", 0),
        ("Ready", "string", 0),
        ("Status", "string", 0),
        ("Restarts", "string", 0),
        ("Age", "string", 0),
        ("IP", "string", 1),
        ("Node", "string", 1),
        ("Nominated Node", "string", 1),
        ("Readiness Gates", "string", 1),
    ]


def a_pod(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "a"}], **spec}
    return {"metadata": named("p"), "spec": spec, "status": status}


def running(name: str = "a", *, ready: bool = True, **more: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "state": {"running": {}}, **more}


def ended(exit_code: int, reason: str = "", name: str = "a", signal: int = 0) -> dict[str, Any]:
    terminated: dict[str, Any] = {"exitCode": exit_code}
    if reason:
        terminated["reason"] = reason
    if signal:
        terminated["signal"] = signal
    return {"name": name, "state": {"terminated": terminated}}


def waiting(reason: str, name: str = "a") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason}}}


READY = [{"type": "Ready", "status": "True"}]


def test_a_row_of_a_pod() -> None:
    doc = a_pod(
        {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "nominatedNodeName": "m",
            "conditions": [{"type": "g1", "status": "True"}, {"type": "g2", "status": "False"}],
            "containerStatuses": [
                running(restartCount=3, lastState={"terminated": {"finishedAt": ago(5)}})
            ],
        },
        nodeName="n",
        readinessGates=[{"conditionType": "g1"}, {"conditionType": "g2"}],
    )
    assert row("pods", doc) == {
        "Name": "p",
        "Ready": "1/1",
        "Status": "Running",
        "Restarts": "3 (5s ago)",
        "Age": "90s",
        "IP (wide)": "10.0.0.1",
        "Node (wide)": "n",
        "Nominated Node (wide)": "m",
        "Readiness Gates (wide)": "1/2",
    }


def test_a_pod_that_is_nowhere_yet() -> None:
    shown = row("pods", a_pod({"phase": "Pending"}))
    assert shown["Ready"] == "0/1"
    assert shown["Status"] == "Pending"
    assert shown["Restarts"] == "0"
    for column in ("IP (wide)", "Node (wide)", "Nominated Node (wide)", "Readiness Gates (wide)"):
        assert shown[column] == "<none>"


TWO = {"containers": [{"name": "a"}, {"name": "b"}]}
INIT = {"initContainers": [{"name": "i"}, {"name": "j"}]}


@pytest.mark.parametrize(
    ("status", "spec", "text"),
    [
        ({"phase": "Failed", "reason": "Evicted"}, {}, "Evicted"),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
            },
            {},
            "SchedulingGated",
        ),
        ({"phase": "Succeeded", "containerStatuses": [ended(0, "Completed")]}, {}, "Completed"),
        ({"phase": "Failed", "containerStatuses": [ended(1, "Error")]}, {}, "Error"),
        ({"phase": "Failed", "containerStatuses": [ended(137, "OOMKilled")]}, {}, "OOMKilled"),
        ({"phase": "Failed", "containerStatuses": [ended(3)]}, {}, "ExitCode:3"),
        ({"phase": "Failed", "containerStatuses": [ended(0, signal=9)]}, {}, "Signal:9"),
        ({"phase": "Pending", "containerStatuses": [waiting("ErrImagePull")]}, {}, "ErrImagePull"),
        # The last container is evaluated first, so the first one decides.
        (
            {"phase": "Running", "containerStatuses": [waiting("X"), waiting("Y", "b")]},
            TWO,
            "X",
        ),
        (
            {
                "phase": "Running",
                "conditions": READY,
                "containerStatuses": [ended(0, "Completed"), running("b")],
            },
            TWO,
            "Running",
        ),
        (
            {"phase": "Running", "containerStatuses": [ended(0, "Completed"), running("b")]},
            TWO,
            "NotReady",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [ended(0, "Completed"), ended(1, "Error", "b")],
            },
            TWO,
            "Error",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [ended(0, name="i"), running("j")]},
            INIT,
            "Init:1/2",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [ended(1, "Error", "i")]},
            INIT,
            "Init:Error",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [ended(7, name="i")]},
            INIT,
            "Init:ExitCode:7",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [ended(0, name="i", signal=0),
                                                           ended(1, name="j", signal=15)]},
            INIT,
            "Init:Signal:15",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [waiting("CrashLoopBackOff", "i")]},
            INIT,
            "Init:CrashLoopBackOff",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [waiting("PodInitializing", "i")]},
            INIT,
            "Init:0/2",
        ),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "Initialized", "status": "True"}],
                "initContainerStatuses": [running("i")],
                "containerStatuses": [waiting("CrashLoopBackOff")],
            },
            INIT,
            "CrashLoopBackOff",
        ),
    ],
)  # fmt: skip
def test_the_status_of_a_pod_in_one_word(
    status: dict[str, Any], spec: dict[str, Any], text: str
) -> None:
    assert row("pods", a_pod(status, **spec))["Status"] == text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    ],
)
def test_the_status_of_a_pod_that_is_being_deleted(status: dict[str, Any], text: str) -> None:
    doc = a_pod(status)
    doc["metadata"]["deletionTimestamp"] = ago(1)
    assert row("pods", doc)["Status"] == text


def test_sidecars_count_as_containers() -> None:
    sidecar = {"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]}
    status = {
        "phase": "Running",
        "initContainerStatuses": [
            running("s", started=True, restartCount=2),
            {**ended(0, name="i"), "restartCount": 4},
        ],
        "containerStatuses": [running("a", restartCount=1)],
    }
    shown = row("pods", a_pod(status, **sidecar))
    assert shown["Ready"] == "2/2"
    # Restarts of plain init containers are not counted once they are done.
    assert shown["Restarts"] == "3"


def test_restarts_column_counts_init_containers_while_initializing() -> None:
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{**waiting("CrashLoopBackOff", "i"), "restartCount": 4}],
    }
    assert row("pods", a_pod(status, **INIT))["Restarts"] == "4"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_table_row_of_ended_pod_has_completed_condition(phase: str) -> None:
    (condition,) = strategy("pods").row_conditions(a_pod({"phase": phase}))
    assert condition["type"] == "Completed"
    assert condition["status"] == "True"
    assert condition["reason"] == phase
    assert strategy("pods").row_conditions(a_pod({"phase": "Running"})) == []


# --- core kinds -------------------------------------------------------------------------------


def test_rows_of_small_kinds() -> None:
    assert row("namespaces", {"metadata": named(), "status": {"phase": "Active"}}) == {
        "Name": "x",
        "Status": "Active",
        "Age": "90s",
    }
    assert row("serviceaccounts", {"metadata": named()}) == {"Name": "x", "Age": "90s"}
    data = {"data": {"a": "", "b": ""}, "binaryData": {"c": ""}}
    assert row("configmaps", {"metadata": named(), **data}) == {
        "Name": "x",
        "Data": 3,
        "Age": "90s",
    }
    assert row("secrets", {"metadata": named(), "type": "Opaque", "data": {"a": ""}}) == {
        "Name": "x",
        "Type": "Opaque",
        "Data": 1,
        "Age": "90s",
    }
    lease = {"metadata": named(), "spec": {"holderIdentity": "me"}}
    assert row("leases.coordination.k8s.io", lease) == {"Name": "x", "Holder": "me", "Age": "90s"}


@pytest.mark.parametrize(
    ("spec", "external", "ports"),
    [
        ({"type": "ClusterIP", "clusterIP": "10.0.0.1"}, "<none>", "<none>"),
        (
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]},
            "<none>",
            "80:30080/TCP",
        ),
        (
            {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2, "protocol": "UDP"}]},
            "<pending>",
            "1/TCP,2/UDP",
        ),
        ({"type": "ExternalName", "externalName": "a.b"}, "a.b", "<none>"),
        ({"type": "ClusterIP", "externalIPs": ["1.2.3.4"]}, "1.2.3.4", "<none>"),
    ],
)
def test_rows_of_services(spec: dict[str, Any], external: str, ports: str) -> None:
    assert row("services", {"metadata": named(), "spec": {**spec, "selector": {"a": "b"}}}) == {
        "Name": "x",
        "Type": spec["type"],
        "Cluster-IP": spec.get("clusterIP", "<none>"),
        "External-IP": external,
        "Port(s)": ports,
        "Age": "90s",
        "Selector (wide)": "a=b",
    }


def test_rows_of_nodes() -> None:
    doc = {
        "metadata": named(labels={"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "a"}),
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {
                "kubeletVersion": "v1",
                "osImage": "os",
                "kernelVersion": "6",
                "containerRuntimeVersion": "process://1",
            },
        },
    }
    assert row("nodes", doc) == {
        "Name": "x",
        "Status": "Ready,SchedulingDisabled",
        "Roles": "a,worker",
        "Age": "90s",
        "Version": "v1",
        "Internal-IP (wide)": "10.0.0.1",
        "External-IP (wide)": "<none>",
        "OS-Image (wide)": "os",
        "Kernel-Version (wide)": "6",
        "Container-Runtime (wide)": "process://1",
    }
    bare = row("nodes", {"metadata": named()})
    assert bare["Status"] == "Unknown"
    assert bare["Roles"] == "<none>"
    assert bare["OS-Image (wide)"] == "<unknown>"
    sick = {"metadata": named(), "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert row("nodes", sick)["Status"] == "NotReady"


@pytest.mark.parametrize("resource", ["events", "events.events.k8s.io"])
def test_rows_of_events(resource: str) -> None:
    doc = {
        "metadata": named("e"),
        "involvedObject": {"kind": "Job", "name": "j1", "fieldPath": "spec"},
        "type": "Normal",
        "reason": "Completed",
        "message": " Job completed\n",
        "source": {"component": "job-controller", "host": "h"},
        "firstTimestamp": ago(60),
        "lastTimestamp": ago(5),
        "count": 3,
    }
    assert row(resource, doc) == {
        "Last Seen": "5s",
        "Type": "Normal",
        "Reason": "Completed",
        "Object": "job/j1",
        "Subobject (wide)": "spec",
        "Source (wide)": "job-controller, h",
        "Message": "Job completed",
        "First Seen (wide)": "60s",
        "Count (wide)": 3,
        "Name (wide)": "e",
    }


def test_rows_of_events_in_series_and_of_single_ones() -> None:
    series = {"count": 7, "lastObservedTime": ago(2)}
    doc = {"metadata": named(), "eventTime": ago(30), "series": series}
    assert row("events", doc)["Last Seen"] == "2s"
    assert row("events", doc)["Count (wide)"] == 7
    single = {"metadata": named(), "eventTime": ago(30), "reportingComponent": "c"}
    assert row("events", single)["Last Seen"] == "30s"
    assert row("events", single)["Count (wide)"] == 1
    assert row("events", single)["Source (wide)"] == "c"


def test_selectors_are_written_in_the_order_of_their_keys() -> None:
    selector = {
        "matchLabels": {"d": "1"},
        "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["y", "x"]},
            {"key": "a", "operator": "DoesNotExist"},
            {"key": "c", "operator": "NotIn", "values": ["z"]},
            {"key": "e", "operator": "Exists"},
        ],
    }
    assert selector_text(selector) == "!a,b in (x,y),c notin (z),d=1,e"
    assert selector_text({}) == "<none>"
