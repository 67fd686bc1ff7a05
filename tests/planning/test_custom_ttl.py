"""Expiry of finished custom resources."""

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
def test_empty_rule_uses_fields_of_jobs(kind: str) -> None:
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
def test_unfinished_or_deleted_or_ttl_less_objects_never_expire(document: Any) -> None:
    assert decide(document) is NEVER


def test_custom_expiry_takes_the_same_ttl_for_all_objects_from_a_number() -> None:
    document = an_object(a_condition(), spec={"ttlSecondsAfterFinished": "ignored"})
    assert decide(document, ttl=3600) == Expires(NOON, NOON + timedelta(hours=1))
    assert decide(document, ttl=0) == Expires(NOON, NOON)
    assert decide(an_object(), ttl=3600) is NEVER


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_custom_expiry_reads_the_ttl_of_a_label_or_annotation(where: str) -> None:
    document = an_object(a_condition())
    rule = {"ttl": f"metadata.{where}[example.org/ttl.seconds]"}
    assert decide(document, **rule) is NEVER
    document["metadata"][where] = {"example.org/ttl.seconds": "90"}
    assert decide(document, **rule) == Expires(NOON, NOON + timedelta(seconds=90))
    for text in ("soon", "-1", "1.5", "", "9" * 30, "\u0661"):
        document["metadata"][where] = {"example.org/ttl.seconds": text}
        problem = f"metadata.{where}[example.org/ttl.seconds] must be a whole number of seconds"
        assert decide(document, **rule) == Unusable(f"{problem}, 0 or more")


def test_custom_expiry_reads_tekton_runs() -> None:
    rule = {"values": ["Succeeded=True", "Succeeded=False"], "ttl": 60}
    expires = Expires(NOON, NOON + timedelta(seconds=60))
    assert decide(an_object(a_condition("Succeeded", "True")), **rule) == expires
    assert decide(an_object(a_condition("Succeeded", "False")), **rule) == expires
    assert decide(an_object(a_condition("Succeeded", "Unknown")), **rule) is NEVER
    assert decide(an_object(a_condition("Succeeded", "False")), values=["Succeeded"]) is NEVER


def test_custom_expiry_reads_prow_jobs() -> None:
    rule = {"finished": "status.completionTime", "values": ["*"], "ttl": 60}
    assert decide(an_object(completionTime=STAMP), **rule) == Expires(
        NOON, NOON + timedelta(seconds=60)
    )
    assert decide(an_object(state="pending"), **rule) is NEVER
    assert decide(an_object(completionTime=""), **rule) is NEVER
    assert decide(an_object(completionTime=None), **rule) is NEVER
    unreadable = decide(an_object(completionTime="soon"), **rule)
    assert unreadable == Unusable(
        "it has finished, but status.completionTime does not contain its end as an RFC 3339 time"
    )
    elsewhere = {**rule, "finished": "status.result", "finishedAt": "status.at"}
    assert decide(an_object(result="ok", at=STAMP), **elsewhere).finished_at == NOON


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
        ('{"ttl": -1}', "ttl must be 0 seconds or more"),
        ('{"ttl": true}', "Expected `int | str`, got `bool`"),
        ('{"ttl": 1.5}', "Expected `int | str`, got `float`"),
        ('{"ttl": "metadata.labels[]"}', "ttl must be field names"),
        ('{"ttl": "spec.labels[a]"}', "ttl must be field names"),
        ('{"values": ["*", "Failed"]}', "must be the only one"),
        ('{"values": ["Succeeded=No"]}', "must be a condition and its status"),
        ('{"values": ["=False"]}', "must be a condition and its status"),
    ],
)
def test_malformed_rule_error_has_reason(text: str, error: str) -> None:
    with pytest.raises(BadRule, match=r"^annotation onejob\.dev/ttl-after-finished: ") as raised:
        read_rule(text)
    assert error.lower() in str(raised.value).lower()
