"""Runner of upstream's TTL arithmetic."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from onejob.objects.job import read_job
from onejob.planning.ttl import Expires, job_expiry, time_left
from tests.conformance.loader import with_value
from tests.conformance.verdict import Case, Failed, Passed, Verdict, compare


def run_case(case: Case) -> Verdict:
    now = datetime.fromisoformat(case["now"])
    job = read_job(msgspec.json.encode(case["job"]))
    expiry, left = job_expiry(job), time_left(job, now)
    subject = isinstance(expiry, Expires)
    place = f"{job.metadata.namespace}/{job.metadata.name}"
    actual: dict[str, Any] = {
        "needsCleanup": subject,
        "expireAt": expiry.at.strftime("%Y-%m-%dT%H:%M:%SZ")
        if isinstance(expiry, Expires)
        else None,
        "timeLeftSeconds": left.total_seconds() if left is not None else None,
        # Upstream returns an error for Jobs without an applicable TTL; here they never expire.
        "error": None if subject else f"job {place} should not be cleaned up",
    }
    for field, expected in case["expected"].items():
        verdict = compare(field, expected, actual[field])
        if isinstance(verdict, Failed):
            return verdict
    return Passed()


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    for field, value in case["expected"].items():
        match value:
            case bool():
                wrong: Any = not value
            case None | str():
                wrong = f"{value}x"
            case _:
                wrong = value + 1
        yield field, with_value(case, ("expected", field), wrong)
