"""When a finished custom resource may go."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onejob.planning.custom_ttl import BadRule, Unusable, custom_expiry, read_rule
from onejob.planning.ttl import NEVER, Expires

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STAMP = "2026-01-01T12:00:00Z"


def an_object(*conditions: Any, spec: Any = None, **status: Any) -> dict[str, Any]:
    spec = {"ttlSecondsAfterFinished": 60} if spec is None else spec
    return {"metadata": {"name": "a"}, "spec": spec, "status": {"conditions": conditions, **status}}


def a_condition(kind: str = "Complete", status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": STAMP, **more}


def decide(document: dict[str, Any], **rule: Any) -> Any:
    # As documents come from the store: lists, not tuples.
    document = msgspec.json.decode(msgspec.json.encode(document))
    return custom_expiry(read_rule(msgspec.json.encode(rule).decode()), document)


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_an_empty_rule_reads_what_jobs_have(kind: str) -> None:
    assert decide(an_object(a_condition(kind))) == Expires(NOON, NOON + timedelta(seconds=60))


def test_every_path_can_be_named() -> None:
    document = an_object(
        spec={"ttlStrategy": {"secondsAfterCompletion": 5}}, phase="Error", finishedAt=STAMP
    )
    rule = {
        "finished": ".status.phase",
        "values": ["Succeeded", "Failed", "Error"],
        "finishedAt": "status.finishedAt",
        "ttl": "spec.ttlStrategy.secondsAfterCompletion",
    }
    assert decide(document, **rule) == Expires(NOON, NOON + timedelta(seconds=5))
    document["status"]["phase"] = "Running"
    assert decide(document, **rule) is NEVER


def test_a_named_finish_time_goes_before_the_condition_and_the_condition_stands_in() -> None:
    early = "2026-01-01T11:00:00Z"
    rule = {"finishedAt": "status.completionTime"}
    document = an_object(a_condition(), completionTime=early)
    assert decide(document, **rule).finished_at == NOON - timedelta(hours=1)
    assert decide(an_object(a_condition()), **rule).finished_at == NOON


@pytest.mark.parametrize(
    "document",
    [
        an_object(),
        an_object(a_condition(status="False")),
        an_object(a_condition("Suspended")),
        an_object(a_condition(), spec={}),
        an_object("Complete", 7, None),
        {"metadata": {}, "spec": [], "status": "Complete"},
        {"metadata": {}},
        {**an_object(a_condition()), "metadata": {"deletionTimestamp": STAMP}},
        an_object(a_condition(), spec={"ttlSecondsAfterFinished": 10**30}),
        an_object(a_condition(), spec={"ttlSecondsAfterFinished": 10**12}),
    ],
)
def test_what_has_not_finished_has_no_ttl_or_goes_already_never_expires(document: Any) -> None:
    assert decide(document) is NEVER


@pytest.mark.parametrize("ttl", [-1, "60", 1.5, True, [60]])
def test_a_ttl_that_is_no_number_of_seconds_is_reported(ttl: Any) -> None:
    verdict = decide(an_object(a_condition(), spec={"ttlSecondsAfterFinished": ttl}))
    text = "spec.ttlSecondsAfterFinished must be a whole number of seconds, 0 or more"
    assert verdict == Unusable(text)


@pytest.mark.parametrize("time", [None, "", "yesterday", 7, "2026-01-01T12:00:00", "9" * 99])
def test_an_end_without_a_time_is_reported(time: Any) -> None:
    verdict = decide(an_object(a_condition(lastTransitionTime=time)))
    assert isinstance(verdict, Unusable)
    assert "status.conditions.lastTransitionTime" in verdict.error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "truncated"),
        ("yes", "malformed"),
        ("[" * 10**5, "Expected `object`, got `array`"),
        ('{"done": "status"}', "unknown field `done`"),
        ('{"values": []}', "values must name at least one value"),
        ('{"values": [""]}', "values must name at least one value"),
        ('{"values": "Complete"}', "Expected `array`, got `str`"),
        ('{"ttl": ""}', "ttl must be field names"),
        ('{"ttl": "spec..ttl"}', "ttl must be field names"),
        ('{"finished": "status.conditions[0]"}', "finished must be field names"),
        ('{"finishedAt": "."}', "finishedAt must be field names"),
    ],
)
def test_a_malformed_rule_says_what_is_wrong(text: str, error: str) -> None:
    with pytest.raises(BadRule, match=r"^annotation onejob\.dev/ttl-after-finished: ") as raised:
        read_rule(text)
    assert error.lower() in str(raised.value).lower()
