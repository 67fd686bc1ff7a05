"""Columns and cells of server-side Tables (`kubectl get`), and human-readable durations."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from onejob.api.strategy import Document

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


def human_duration(seconds: float) -> str:
    """Return a duration with about two digits of precision, as kubectl prints ages."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two_units(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two_units(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two_units(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two_units(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def since(time: str | None, now: datetime) -> str:
    """Return the time elapsed since a timestamp of a document; `<unknown>` if it is unset."""
    moment = read_time(time)
    return UNKNOWN if moment is None else human_duration((now - moment).total_seconds())


def age(doc: Document, now: datetime) -> str:
    """Return the age of an object in words."""
    return since(doc["metadata"].get("creationTimestamp"), now)


def name_of(doc: Document) -> str:
    name: str = doc["metadata"].get("name", "")
    return name


def read_time(time: str | None) -> datetime | None:
    """Return a timestamp; None if it is absent or empty."""
    return datetime.fromisoformat(time) if time else None


def column(
    name: str, description: str, *, type: str = "string", format: str = "", wide: bool = False
) -> dict[str, Any]:
    """Return a column definition. `wide` columns are shown only with `-o wide`."""
    return {
        "name": name,
        "type": type,
        "format": format,
        "description": description,
        "priority": int(wide),
    }


NAME: Final = column("Name", "The name of the object, unique in its namespace.", format="name")
AGE: Final = column("Age", "How long ago the object was created.")
NAME_AND_AGE: Final = [NAME, AGE]

_TEMPLATE_COLUMNS: Final = [
    column("Containers", "Names of each container in the template.", wide=True),
    column("Images", "Images referenced by each container in the template.", wide=True),
    column("Selector", "Label selector of the pods.", wide=True),
]

# --- jobs -------------------------------------------------------------------------------------

JOB_COLUMNS: Final = [
    NAME,
    column("Status", "Status of the job."),
    column("Completions", "How many pods succeeded, of how many."),
    column("Duration", "Time between the start of the job and its completion, or until now."),
    AGE,
    *_TEMPLATE_COLUMNS,
]

MANAGED_BY: Final = column("Managed By", "The controller that reconciles the job.", wide=True)

#: Conditions in order of precedence for the status column. None is the rank of a deletion.
_JOB_STATUS_ORDER: Final = (
    "Complete",
    "Failed",
    None,
    "Suspended",
    "FailureTarget",
    "SuccessCriteriaMet",
)


def job_cells(doc: Document, now: datetime) -> list[Any]:
    """Return the cells of a Job."""
    spec, status = doc.get("spec", {}), doc.get("status", {})
    return [
        name_of(doc),
        _job_status(doc),
        _job_completions(spec, status),
        _job_duration(status, now),
        age(doc, now),
        *_template_cells(spec),
    ]


def managed_by_cell(doc: Document) -> str:
    manager: str = doc.get("spec", {}).get("managedBy") or NONE
    return manager


def _job_status(doc: Document) -> str:
    """Return the Job's state in one word."""
    conditions = doc.get("status", {}).get("conditions", ())
    true = {c.get("type") for c in conditions if c.get("status") == "True"}
    for condition in _JOB_STATUS_ORDER:
        if condition is None:
            if "deletionTimestamp" in doc["metadata"]:
                return "Terminating"
        elif condition in true:
            return condition
    return "Running"


def _job_completions(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    succeeded = status.get("succeeded", 0)
    completions = spec.get("completions")
    if completions is not None:
        return f"{succeeded}/{completions}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(status: Mapping[str, Any], now: datetime) -> str:
    start = read_time(status.get("startTime"))
    if start is None:
        return ""
    # A failed Job has no completionTime, so its duration keeps growing: upstream's rule.
    end = read_time(status.get("completionTime")) or now
    return human_duration((end - start).total_seconds())


def _template_cells(job_spec: Mapping[str, Any]) -> list[str]:
    containers = job_spec.get("template", {}).get("spec", {}).get("containers", ())
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        selector_text(job_spec.get("selector", {})),
    ]


# --- cronjobs ---------------------------------------------------------------------------------

CRONJOB_COLUMNS: Final = [
    NAME,
    column("Schedule", "When the cronjob runs, in cron format."),
    column("Timezone", "The time zone of the schedule; unset means the controller's."),
    column("Suspend", "Whether further runs are suspended.", type="boolean"),
    column("Active", "How many jobs are running.", type="integer"),
    column("Last Schedule", "When the last job was scheduled."),
    AGE,
    *_TEMPLATE_COLUMNS,
]


def cronjob_cells(doc: Document, now: datetime) -> list[Any]:
    """Return the cells of a CronJob."""
    spec, status = doc.get("spec", {}), doc.get("status", {})
    last = status.get("lastScheduleTime")
    return [
        name_of(doc),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        _bool_text(spec.get("suspend")),
        len(status.get("active", ())),
        since(last, now) if last else NONE,
        age(doc, now),
        *_template_cells(spec.get("jobTemplate", {}).get("spec", {})),
    ]


def _bool_text(value: bool | None) -> str:
    return "<unset>" if value is None else str(value)


# --- core kinds -------------------------------------------------------------------------------

NAMESPACE_COLUMNS: Final = [NAME, column("Status", "The phase of the namespace."), AGE]


def namespace_cells(doc: Document, now: datetime) -> list[Any]:
    return [name_of(doc), doc.get("status", {}).get("phase", ""), age(doc, now)]


CONFIG_MAP_COLUMNS: Final = [NAME, column("Data", "How many keys there are."), AGE]


def config_map_cells(doc: Document, now: datetime) -> list[Any]:
    return [name_of(doc), len(doc.get("data", ())) + len(doc.get("binaryData", ())), age(doc, now)]


SECRET_COLUMNS: Final = [
    NAME,
    column("Type", "Type of the secret."),
    column("Data", "How many keys there are."),
    AGE,
]


def secret_cells(doc: Document, now: datetime) -> list[Any]:
    return [name_of(doc), doc.get("type", ""), len(doc.get("data", ())), age(doc, now)]


LEASE_COLUMNS: Final = [NAME, column("Holder", "Who holds the lease."), AGE]


def lease_cells(doc: Document, now: datetime) -> list[Any]:
    return [name_of(doc), doc.get("spec", {}).get("holderIdentity", ""), age(doc, now)]


SERVICE_COLUMNS: Final = [
    NAME,
    column("Type", "How the service is exposed."),
    column("Cluster-IP", "The address of the service inside the cluster."),
    column("External-IP", "Addresses of the service outside the cluster."),
    column("Port(s)", "The ports of the service."),
    AGE,
    column("Selector", "The labels of the pods that serve it.", wide=True),
]


def service_cells(doc: Document, now: datetime) -> list[Any]:
    """Return the cells of a Service."""
    spec = doc.get("spec", {})
    return [
        name_of(doc),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        _external_addresses(doc),
        ",".join(map(_service_port, spec.get("ports", ()))) or NONE,
        age(doc, now),
        labels_text(spec.get("selector", {})),
    ]


def _external_addresses(doc: Document) -> str:
    """Return the external addresses of a Service."""
    spec = doc.get("spec", {})
    addresses = list(spec.get("externalIPs", ()))
    match spec.get("type"):
        case "ExternalName":
            name: str = spec.get("externalName") or NONE
            return name
        case "LoadBalancer":
            entries = doc.get("status", {}).get("loadBalancer", {}).get("ingress", ())
            served = [entry.get("ip") or entry.get("hostname", "") for entry in entries]
            return ",".join([*served, *addresses]) or "<pending>"
        case _:
            return ",".join(addresses) or NONE


def _service_port(port: Mapping[str, Any]) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


NODE_COLUMNS: Final = [
    NAME,
    column("Status", "Whether the node is ready, and whether it takes new pods."),
    column("Roles", "The roles of the node."),
    AGE,
    column("Version", "The version of the node's agent."),
    column("Internal-IP", "Address inside the cluster.", wide=True),
    column("External-IP", "Address outside the cluster.", wide=True),
    column("OS-Image", "The operating system.", wide=True),
    column("Kernel-Version", "The kernel.", wide=True),
    column("Container-Runtime", "Container runtime.", wide=True),
]

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"


def node_cells(doc: Document, now: datetime) -> list[Any]:
    """Return the cells of a Node."""
    status = doc.get("status", {})
    info = status.get("nodeInfo", {})
    addresses = {entry.get("type"): entry.get("address") for entry in status.get("addresses", ())}
    return [
        name_of(doc),
        _node_status(doc),
        _node_roles(doc["metadata"].get("labels", {})),
        age(doc, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _node_status(doc: Document) -> str:
    """Return the Node's state."""
    text = "Unknown"
    for condition in doc.get("status", {}).get("conditions", ()):
        if condition.get("type") == "Ready":
            text = "Ready" if condition.get("status") == "True" else "NotReady"
    if doc.get("spec", {}).get("unschedulable"):
        text += ",SchedulingDisabled"
    return text


def _node_roles(labels: Mapping[str, str]) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    if named := labels.get("kubernetes.io/role"):
        roles.add(named)
    return ",".join(sorted(roles - {""})) or NONE


EVENT_COLUMNS: Final = [
    column("Last Seen", "When the event happened last."),
    column("Type", "Normal or Warning."),
    column("Reason", "A short, machine readable reason."),
    column("Object", "Object that the event is about."),
    column("Subobject", "Which part of the object.", wide=True),
    column("Source", "Who reported the event.", wide=True),
    column("Message", "What happened."),
    column("First Seen", "When the event happened first.", wide=True),
    column("Count", "How often the event happened.", wide=True),
    column("Name", "The name of the event.", wide=True),
]


def event_cells(doc: Document, now: datetime) -> list[Any]:
    """Return the cells of an Event."""
    target = doc.get("involvedObject", {})
    kind, name = target.get("kind", "").lower(), target.get("name", "")
    first = since(doc.get("firstTimestamp") or doc.get("eventTime"), now)
    last = since(doc["lastTimestamp"], now) if doc.get("lastTimestamp") else first
    count = doc.get("count") or 1
    if series := doc.get("series"):
        last = since(series.get("lastObservedTime"), now)
        count = series.get("count", 0)
    return [
        last,
        doc.get("type", ""),
        doc.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        target.get("fieldPath", ""),
        _event_source(doc),
        doc.get("message", "").strip(),
        first,
        count,
        name_of(doc),
    ]


def _event_source(doc: Document) -> str:
    source = doc.get("source", {})
    component = source.get("component") or doc.get("reportingComponent", "")
    host = source.get("host") or doc.get("reportingInstance", "")
    return ", ".join(filter(None, (component, host)))


# --- selectors as text ------------------------------------------------------------------------


def labels_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or NONE


def selector_text(selector: Mapping[str, Any]) -> str:
    pairs = [(key, f"{key}={value}") for key, value in selector.get("matchLabels", {}).items()]
    pairs += [(e.get("key", ""), _expression_text(e)) for e in selector.get("matchExpressions", ())]
    return ",".join(text for _, text in sorted(pairs)) or NONE


def _expression_text(expression: Mapping[str, Any]) -> str:
    """Return a selector requirement in kubectl's notation."""
    key = expression.get("key", "")
    values = ",".join(sorted(expression.get("values", ())))
    match expression.get("operator"):
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return f"{key}"


def _two_units(seconds: int, major: int, major_name: str, minor: int, minor_name: str) -> str:
    rest = seconds % major // minor
    text = f"{seconds // major}{major_name}"
    return f"{text}{rest}{minor_name}" if rest else text
