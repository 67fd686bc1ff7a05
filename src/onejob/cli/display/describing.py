"""Text of `onejob describe`: kubectl's layout, from a document and its events. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.printing import human_duration, read_time
from onejob.cli.display.quantities import memory_text
from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import UNLIMITED
from onejob.cli.kept_runs import RunEnd
from onejob.diagnosis.ended import finish_of, has_ended
from onejob.planning.names import LAST_APPLIED

Document = Mapping[str, Any]

_NONE: Final = "<none>"
_UNSET: Final = "<unset>"
#: Index lists are truncated at the first comma after this many characters.
_INDEXES_SHOWN: Final = 50


def describe(
    document: Document,
    events: Sequence[Document],
    now: datetime,
    ended: RunEnd | None = None,
    usage: Sequence[str] = (),
    history: Sequence[str] = (),
) -> list[str]:
    """Return the description of an object.

    `ended` is the end of the run whose kept state this is; `usage` has lines on a Pod's current
    resource usage, `history` on the ended Pods of a Job.
    """
    match document["kind"]:
        case "Job":
            fields = _job(document, ended)
            lines = [*_fields(fields), *_template(document["spec"]["template"])]
        case "CronJob":
            lines = _cronjob(document)
        case "Workflow":
            from onejob.cli.display.workflow_description import task_lines, workflow_fields

            fields = iter([*_heading(document), *_labels(document["metadata"]), *_owner(document),
                           *workflow_fields(document, now, ended).items()])  # fmt: skip
            lines = [*_fields(fields), *task_lines(document, ended)]
        case "Pod":
            lines = _pod(document, now, ended)
        case _:
            lines = _plain(document)
    if usage:
        lines = [*lines, "Usage:", *(f"  {text}" for text in usage)]
    if history:
        lines = [*lines, "History:", *(f"  {text}" for text in history)]
    return [*lines, *_events(events, now)]


# --- Jobs -----------------------------------------------------------------------------------


def _job(job: Document, run: RunEnd | None) -> Iterator[tuple[str, str]]:
    spec, status = job["spec"], job.get("status", {})
    yield from _heading(job)
    cut_short = run is not None and finish_of(job) is None
    if run is not None and cut_short:
        own = run.of_job(job["metadata"].get("namespace", ""), job["metadata"]["name"])
        yield "Status", f"{own.word} at {_format_time(own.at)}: {own.cause}"
    yield "Selector", _pairs_inline(spec.get("selector", {}).get("matchLabels", {}))
    yield from _labels(job["metadata"])
    yield from _owner(job)
    yield "Parallelism", _text_or_unset(spec.get("parallelism"))
    yield "Completions", _text_or_unset(spec.get("completions"))
    yield "Completion Mode", spec.get("completionMode", _UNSET)
    yield "Suspend", _boolean(spec.get("suspend", False))
    yield "Backoff Limit", _text_or_unset(spec.get("backoffLimit"))
    if spec.get("managedBy"):
        yield "Managed By", spec["managedBy"]
    if spec.get("ttlSecondsAfterFinished") is not None:
        yield "TTL Seconds After Finished", str(spec["ttlSecondsAfterFinished"])
    started, ended = read_time(status.get("startTime")), read_time(status.get("completionTime"))
    if started is not None:
        yield "Start Time", _format_time(started)
    if ended is not None:
        yield "Completed At", _format_time(ended)
    if started is not None and ended is not None:
        yield "Duration", human_duration((ended - started).total_seconds())
    if spec.get("activeDeadlineSeconds") is not None:
        yield "Active Deadline Seconds", f"{spec['activeDeadlineSeconds']}s"
    if started is not None and run is not None and cut_short:
        yield "Duration", human_duration((run.at - started).total_seconds())
    counts = {name: status.get(name, 0) for name in ("active", "ready", "succeeded", "failed")}
    if run is not None:
        counts |= {"active": 0, "ready": 0}
    yield (
        "Pods Statuses",
        "{active} Active ({ready} Ready) / {succeeded} Succeeded / {failed} Failed".format(
            **counts
        ),
    )
    if spec.get("completionMode") == "Indexed":
        yield "Completed Indexes", _indexes(status.get("completedIndexes", ""))
    if status.get("failedIndexes") is not None:
        yield "Failed Indexes", _indexes(status["failedIndexes"])


def _cronjob(cronjob: Document) -> list[str]:
    spec, status = cronjob["spec"], cronjob.get("status", {})
    job = spec["jobTemplate"].get("spec", {})
    head = [
        *_heading(cronjob),
        *_labels(cronjob["metadata"]),
        ("Schedule", spec["schedule"]),
        ("Concurrency Policy", spec.get("concurrencyPolicy", _UNSET)),
        ("Suspend", _boolean(spec.get("suspend", False))),
        ("Time Zone", spec.get("timeZone", _UNSET)),
        ("Successful Job History Limit", _text_or_unset(spec.get("successfulJobsHistoryLimit"))),
        ("Failed Job History Limit", _text_or_unset(spec.get("failedJobsHistoryLimit"))),
        ("Starting Deadline Seconds", _seconds(spec.get("startingDeadlineSeconds"))),
        ("Selector", _UNSET),
        ("Parallelism", _text_or_unset(job.get("parallelism"))),
        ("Completions", _text_or_unset(job.get("completions"))),
    ]
    if job.get("activeDeadlineSeconds") is not None:
        head.append(("Active Deadline Seconds", f"{job['activeDeadlineSeconds']}s"))
    last = read_time(status.get("lastScheduleTime"))
    active = ", ".join(reference["name"] for reference in status.get("active", ()))
    tail = [
        ("Last Schedule Time", _format_time(last) if last else _UNSET),
        ("Active Jobs", active or _NONE),
    ]
    return [*_fields(head), *_template(job.get("template", {})), *_fields(tail)]


# --- Pods -----------------------------------------------------------------------------------


def _pod(pod: Document, now: datetime, run: RunEnd | None) -> list[str]:
    spec, status = pod["spec"], pod.get("status", {})
    started = read_time(status.get("startTime"))
    terminating = read_time(pod["metadata"].get("deletionTimestamp"))
    phase = status.get("phase", "")
    if terminating is not None:
        phase = f"Terminating (lasts {human_duration((now - terminating).total_seconds())})"
    if run is not None and not has_ended(pod):
        phase = f"{run.word} at {_format_time(run.at)}: {run.cause}"
    head = [
        *_heading(pod),
        ("Service Account", spec.get("serviceAccountName", _NONE)),
        ("Node", spec.get("nodeName", _NONE)),
        *([("Start Time", _format_time(started))] if started else []),
        *_labels(pod["metadata"]),
        ("Status", phase),
        *([("Reason", status["reason"])] if status.get("reason") else []),
        *([("Message", status["message"])] if status.get("message") else []),
        ("IP", status.get("podIP", "")),
        *_owner(pod),
    ]
    lines = list(_fields(head))
    for title, field in (("Init Containers", "initContainers"), ("Containers", "containers")):
        if spec.get(field):
            found = status.get(field.replace("ainers", "ainerStatuses"), ())
            reports = {report["name"]: report for report in found}
            lines.append(f"{title}:")
            for container in spec[field]:
                report = reports.get(container["name"], {})
                lines.extend(_container(container, report, indent="  "))
    lines.append("Conditions:")
    rows = [[c["type"], c["status"]] for c in status.get("conditions", ())]
    lines.extend(f"  {line}" for line in render_table(["Type", "Status"], rows, UNLIMITED))
    lines.extend(_volumes(spec, indent=""))
    return lines


def _container(container: Document, report: Document, indent: str) -> Iterator[str]:
    yield f"{indent}{container['name']}:"
    inner = indent + "  "
    facts: list[tuple[str, str]] = []
    if report.get("containerID"):
        facts.append(("Container ID", report["containerID"]))
    facts.append(("Image", container.get("image", "")))
    yield from _fields(facts, inner)
    for title in ("command", "args"):
        if container.get(title):
            yield f"{inner}{title.capitalize()}:"
            for word in container[title]:
                yield from (f"{inner}  {line}" for line in str(word).split("\n"))
    if report:
        yield from _state("State", report.get("state", {}), inner)
        if report.get("lastState"):
            yield from _state("Last State", report["lastState"], inner)
        ready = _boolean(report.get("ready", False)).capitalize()
        restarts = str(report.get("restartCount", 0))
        yield from _fields([("Ready", ready), ("Restart Count", restarts)], inner)
    resources = container.get("resources", {})
    for title in ("limits", "requests"):
        if resources.get(title):
            yield f"{inner}{title.capitalize()}:"
            yield from _fields(sorted(resources[title].items()), inner + "  ")
    yield from _environment(container, inner)
    mounts = [
        f"{inner}  {mount['mountPath']} from {mount['name']} "
        f"({'ro' if mount.get('readOnly') else 'rw'})"
        for mount in container.get("volumeMounts", ())
    ]
    yield from [f"{inner}Mounts:", *mounts] if mounts else [f"{inner}Mounts:  {_NONE}"]


def _state(title: str, state: Document, indent: str) -> Iterator[str]:
    name = next(iter(state), "waiting")
    details = state.get(name) or {}
    yield from _fields([(title, name.capitalize())], indent)
    facts = []
    for label, field in (("Reason", "reason"), ("Message", "message"), ("Exit Code", "exitCode")):
        if field in details:
            facts.append((label, str(details[field])))
    for label, field in (("Started", "startedAt"), ("Finished", "finishedAt")):
        moment = read_time(details.get(field))
        if moment is not None:
            facts.append((label, _format_time(moment)))
    yield from _fields(facts, indent + "  ")
    if peak := details.get("peakMemoryBytes"):
        # Apart, so that the lines above are aligned as kubectl's.
        measured = [
            ("Peak Memory", memory_text(peak)),
            ("CPU Time", f"{details.get('cpuMilliseconds', 0) / 1000:g}s"),
            ("Duration", f"{details.get('durationMilliseconds', 0) / 1000:g}s"),
        ]
        yield from _fields(measured, indent + "  ")


def _environment(container: Document, indent: str) -> Iterator[str]:
    variables = container.get("env", ())
    if not variables:
        yield f"{indent}Environment:  {_NONE}"
        return
    yield f"{indent}Environment:"
    yield from _fields(
        [(variable["name"], _source(variable)) for variable in variables], indent + "  "
    )


def _source(variable: Document) -> str:
    source = variable.get("valueFrom")
    if not source:
        return str(variable.get("value", ""))
    kind, details = next(iter(source.items()))
    match kind:
        case "fieldRef":
            return f" (v1:{details.get('fieldPath')})"
        case "configMapKeyRef" | "secretKeyRef":
            thing = "config map" if kind == "configMapKeyRef" else "secret"
            return f"<set to the key '{details['key']}' of {thing} '{details.get('name')}'>"
        case _:
            return f"<from {kind}>"


def _volumes(spec: Document, indent: str) -> Iterator[str]:
    volumes = spec.get("volumes", ())
    if not volumes:
        yield f"{indent}Volumes:  {_NONE}"
        return
    yield f"{indent}Volumes:"
    for volume in volumes:
        kind = next((key for key in volume if key != "name"), "emptyDir")
        yield f"{indent}  {volume['name']}: {kind}"


# --- shared ---------------------------------------------------------------------------------


def _template(template: Document) -> list[str]:
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    lines = ["Pod Template:", *_fields(_labels(metadata, bare=True), "  ")]
    for title, field in (("Init Containers", "initContainers"), ("Containers", "containers")):
        if spec.get(field):
            lines.append(f"  {title}:")
            for container in spec[field]:
                lines.extend(_container(container, {}, indent="   "))
    return [*lines, *_volumes(spec, indent="  ")]


def _plain(document: Document) -> list[str]:
    """Describe kinds without a layout of their own: their fields as YAML, Secrets hidden."""
    from onejob.cli.yaml_text import yaml_of

    head = [*_heading(document), *_labels(document["metadata"])]
    rest = {
        key: value
        for key, value in document.items()
        if key not in ("apiVersion", "kind", "metadata")
    }
    if document["kind"] == "Secret":
        rest["data"] = dict.fromkeys(document.get("data", {}), "<hidden>")
    body = yaml_of(rest).rstrip("\n").split("\n") if rest else []
    return [*_fields(head), *body]


def _events(events: Sequence[Document], now: datetime) -> list[str]:
    if not events:
        return [f"Events:  {_NONE}"]
    ordered = sorted(events, key=_last_seen)
    rows = [["----", "------", "----", "----", "-------"]]
    rows += [
        [
            event.get("type", ""),
            event.get("reason", ""),
            _event_age(event, now),
            event.get("source", {}).get("component") or event.get("reportingComponent", ""),
            " ".join(event.get("message", "").split()),
        ]
        for event in ordered
    ]
    table = render_table(["Type", "Reason", "Age", "From", "Message"], rows, UNLIMITED)
    return ["Events:", *(f"  {line}" for line in table)]


def _last_seen(event: Document) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _event_age(event: Document, now: datetime) -> str:
    last = read_time(_last_seen(event))
    age = human_duration((now - last).total_seconds()) if last else "<unknown>"
    if event.get("count", 1) <= 1:
        return age
    first = read_time(event.get("firstTimestamp"))
    over = human_duration((now - first).total_seconds()) if first else "<unknown>"
    return f"{age} (x{event['count']} over {over})"


def _heading(document: Document) -> list[tuple[str, str]]:
    metadata = document["metadata"]
    heading = [("Name", metadata["name"])]
    return [*heading, ("Namespace", metadata["namespace"])] if "namespace" in metadata else heading


def _labels(metadata: Document, *, bare: bool = False) -> list[tuple[str, str]]:
    fields = [("Labels", _pairs(metadata.get("labels", {})))]
    annotations = {**metadata.get("annotations", {})}
    # The whole manifest again, in one line; kubectl describe omits it, too.
    annotations.pop(LAST_APPLIED, None)
    if not bare or annotations:
        fields.append(("Annotations", _pairs(annotations, ": ")))
    return fields


def _owner(document: Document) -> list[tuple[str, str]]:
    for reference in document["metadata"].get("ownerReferences", ()):
        if reference.get("controller"):
            return [("Controlled By", f"{reference['kind']}/{reference['name']}")]
    return []


def _fields(
    fields: "Sequence[tuple[str, str]] | Iterator[tuple[str, str]]", indent: str = ""
) -> Iterator[str]:
    """Yield `Label:  value` lines, values in one column, further lines of a value below it."""
    listed = list(fields)
    width = max((len(label) for label, _ in listed), default=0) + 3
    for label, value in listed:
        first, *more = str(value).split("\n")
        yield f"{indent}{label + ':':<{width}}{first}".rstrip()
        yield from (f"{indent}{'':<{width}}{line}".rstrip(" ") for line in more)


def _pairs(mapping: Document, separator: str = "=") -> str:
    return "\n".join(f"{k}{separator}{v}" for k, v in sorted(mapping.items())) or _NONE


def _pairs_inline(mapping: Document) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(mapping.items())) or _NONE


def _indexes(text: str) -> str:
    if len(text) <= _INDEXES_SHOWN:
        return text or _NONE
    comma = text.find(",", _INDEXES_SHOWN)
    return text if comma < 0 else text[:comma] + ",..."


def _format_time(moment: datetime) -> str:
    return moment.strftime("%a, %d %b %Y %H:%M:%S %z")


def _text_or_unset(value: object) -> str:
    return _UNSET if value is None else str(value)


def _seconds(value: int | None) -> str:
    return _UNSET if value is None else f"{value}s"


def _boolean(value: bool) -> str:
    return "true" if value else "false"
