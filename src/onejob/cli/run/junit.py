"""JUnit report of a run: a test suite for each Job, with a test case for each index. Pure.

A Job without indexes is a single test case. A failed Job whose failure its workflow handles counts
as skipped; a failed workflow has a suite of its own.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias
from xml.etree import ElementTree as Xml

from onejob.cli.run.problems import job_problem, pod_problem
from onejob.cli.run.progress import JobProgress, RunProgress
from onejob.planning.job.indexes import parse_indexes

#: Noncharacters that XML forbids; control characters are made visible before.
_NOT_IN_XML: Final = dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd")

LastLines: TypeAlias = Mapping[str, Sequence[str]]


def junit_xml(run: RunProgress, now: datetime, last_lines: LastLines) -> bytes:
    """Return the report as XML. `last_lines` is by Pod UID."""
    root = Xml.Element("testsuites", name="onejob")
    for job in run:
        cases = [_handled_element(job)] if run.is_handled(job) else _cases(job, now, last_lines)
        metadata = job.job.metadata
        name = f"{metadata.namespace}/{metadata.name}"
        root.append(_suite_element(name, cases, job.wall_seconds(now)))
    for workflow in run.failed_workflows:
        metadata, title = workflow.workflow.metadata, workflow.title
        case = Xml.Element("testcase", classname=metadata.namespace, name=title)
        _fail(case, workflow.problem, [])
        seconds = workflow.wall_seconds(now)
        root.append(_suite_element(f"{metadata.namespace}/{title}", [case], seconds))
    Xml.indent(root)
    text: str = Xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text.translate(_NOT_IN_XML)}\n'.encode()


def _cases(job: JobProgress, now: datetime, last_lines: LastLines) -> list[Xml.Element]:
    cases = _indexes(job, last_lines) if job.job.indexed and job.goal else []
    return cases or [_job_case_element(job, now, last_lines)]


def _handled_element(job: JobProgress) -> Xml.Element:
    case = _case_element(job, job.job.metadata.name)
    Xml.SubElement(case, "skipped", message=f"handled by its workflow: {job_problem(job)}")
    return case


def _suite_element(name: str, cases: Sequence[Xml.Element], seconds: float) -> Xml.Element:
    suite = Xml.Element("testsuite", name=name)
    suite.extend(cases)
    for name, value in (
        ("tests", len(cases)),
        ("failures", len(suite.findall("testcase/failure"))),
        ("errors", 0),
        ("skipped", len(suite.findall("testcase/skipped"))),
    ):
        suite.set(name, str(value))
    suite.set("time", f"{seconds:.3f}")
    return suite


def _job_case_element(job: JobProgress, now: datetime, last_lines: LastLines) -> Xml.Element:
    case = _case_element(job, job.job.metadata.name)
    case.set("time", f"{job.wall_seconds(now):.3f}")
    if not job.complete:
        lines = [line for pod in job.failures for line in pod_problem(pod, last_lines)]
        _fail(case, job_problem(job), lines)
    return case


def _indexes(job: JobProgress, last_lines: LastLines) -> list[Xml.Element]:
    status, count = job.job.status, job.goal or 0
    completed = set(parse_indexes(status.completed_indexes, count))
    failed = {int(pod.index): pod for pod in job.failures if pod.index}
    given_up = set(parse_indexes(status.failed_indexes or "", count))
    cases = []
    for index in range(count):
        case = _case_element(job, f"{job.job.metadata.name}[{job.index_title(index)}]")
        if (seconds := job.index_seconds.get(index)) is not None:
            case.set("time", f"{seconds:.3f}")
        if index in completed:
            pass
        elif index in failed and not failed[index].stopped:
            first, *rest = pod_problem(failed[index], last_lines)
            _fail(case, first, rest)
        elif index in given_up:
            _fail(case, "the index failed", [])
        else:
            Xml.SubElement(case, "skipped", message=f"not run: {_why_not_done(job)}")
        cases.append(case)
    return cases


def _why_not_done(job: JobProgress) -> str:
    return "not required for the Job to complete" if job.complete else job_problem(job)


def _case_element(job: JobProgress, name: str) -> Xml.Element:
    return Xml.Element("testcase", classname=job.job.metadata.namespace, name=name)


def _fail(case: Xml.Element, message: str, lines: Sequence[str]) -> None:
    Xml.SubElement(case, "failure", message=message).text = "\n".join(lines)
