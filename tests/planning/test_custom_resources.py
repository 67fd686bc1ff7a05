"""Accepted names of a CustomResourceDefinition, and its Established condition."""

from datetime import UTC, datetime, timedelta
from typing import Any

from onejob.planning.custom_resources import (
    NamesInUse,
    is_true,
    names_in_use,
    planned_status,
    with_condition,
)
from onejob.wire.kinds import KINDS
from tests.api.crd.build import a_definition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FREE = NamesInUse()


def definition(**names: Any) -> dict[str, Any]:
    full = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return a_definition(names={**full, **names})


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {
        entry["type"]: (entry["status"], entry["reason"], entry["message"])
        for entry in status["conditions"]
    }


def test_free_names_are_accepted_and_the_definition_is_established() -> None:
    status = planned_status(definition(shortNames=["wd"], categories=["all"]), FREE, NOW)
    assert status["acceptedNames"] == {
        "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
        "shortNames": ["wd"], "categories": ["all"],
    }  # fmt: skip
    assert conditions(status) == {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }


def test_a_name_of_another_definition_is_not_given_away_twice() -> None:
    first = definition(shortNames=["wd"])
    first["status"] = planned_status(first, FREE, NOW)
    second = definition(
        plural="gadgets", singular="gadget", listKind="GadgetList", shortNames=["wd"]
    )
    in_use = names_in_use("example.com", [first], KINDS)
    status = planned_status(second, in_use, NOW)
    assert conditions(status) == {
        "NamesAccepted": ("False", "KindConflict", '"Widget" is already in use'),
        "Established": ("False", "NotAccepted", "not all names are accepted"),
    }
    assert status["acceptedNames"]["plural"] == "gadgets"
    assert status["acceptedNames"]["kind"] == ""
    # Once the other is gone, it gets them.
    second["status"] = status
    assert is_true({"status": planned_status(second, FREE, NOW)}, "Established")


def test_names_of_the_servers_own_kinds_are_in_use() -> None:
    in_use = names_in_use("coordination.k8s.io", [], KINDS)
    assert {"leases", "lease"} <= in_use.resources
    assert "Lease" in in_use.kinds
    assert names_in_use("example.com", [], KINDS) == FREE


def test_nothing_changes_twice_and_an_established_one_stays_so() -> None:
    known = definition()
    known["status"] = planned_status(known, FREE, NOW)
    later = NOW + timedelta(hours=1)
    assert planned_status(known, FREE, later) == known["status"]
    taken = NamesInUse(resources=frozenset({"wd"}))
    known["spec"]["names"]["shortNames"] = ["wd"]
    status = planned_status(known, taken, later)
    assert is_true({"status": status}, "Established")
    refused = ("False", "ShortNamesConflict", '"wd" is already in use')
    assert conditions(status)["NamesAccepted"] == refused
    assert "shortNames" not in status["acceptedNames"]


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = with_condition([], "A", "True", "Why", "text", NOW)
    later = NOW + timedelta(hours=1)
    [kept] = with_condition(first, "A", "True", "Other", "text", later)
    assert (kept["lastTransitionTime"], kept["reason"]) == ("2026-01-01T00:00:00Z", "Other")
    [changed] = with_condition(first, "A", "False", "Other", "text", later)
    assert changed["lastTransitionTime"] == "2026-01-01T01:00:00Z"
