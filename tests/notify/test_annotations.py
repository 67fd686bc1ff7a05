"""Precedence of notification annotations, and invalid ones."""

import pytest

from onejob.planning.notify.annotations import (
    USUAL_EVENTS,
    Subscription,
    effective_subscription,
    read_subscription,
)
from tests.notify.support import NOTIFY, NOTIFY_ON


def test_the_nearest_annotation_counts() -> None:
    job, cronjob, namespace = {NOTIFY: "a"}, {NOTIFY: "b"}, {NOTIFY: "c"}
    assert effective_subscription(job, cronjob, namespace) == Subscription(("a",))
    assert effective_subscription({}, cronjob, namespace) == Subscription(("b",))
    assert effective_subscription({}, {}, namespace) == Subscription(("c",))
    assert effective_subscription({}, {}, {}) is None
    assert effective_subscription({NOTIFY: ""}, cronjob, namespace) == Subscription()


def test_several_targets_and_other_events() -> None:
    subscription = read_subscription({NOTIFY: "ops, mail,ops", NOTIFY_ON: "finished"})
    assert subscription == Subscription(("ops", "mail"), frozenset({"finished"}))
    assert subscription.wants("finished", USUAL_EVENTS)
    assert not subscription.wants("failed", USUAL_EVENTS)
    assert read_subscription({NOTIFY: "ops"}).wants("failed", USUAL_EVENTS)


@pytest.mark.parametrize(
    "text",
    ["ops\nmail", "ops\r\nX-Header: 1", "/bin/sh", "http://elsewhere/", "OPS", "a" * 64, "$(id)"],
)
def test_invalid_target_names_are_rejected(text: str) -> None:
    subscription = read_subscription({NOTIFY: f"good,{text}"})
    assert subscription.targets == ("good",)
    [problem] = subscription.problems
    assert "\n" not in problem
    assert len(problem) < 150


def test_targets_without_end_and_unknown_events_are_problems() -> None:
    subscription = read_subscription(
        {NOTIFY: ",".join(f"t{i}" for i in range(1000)), NOTIFY_ON: "sometimes"}
    )
    assert len(subscription.targets) == 10
    assert subscription.events == frozenset()
    assert [problem.split(":")[0] for problem in subscription.problems] == [
        "onejob.dev/notify names more than 10 targets",
        "onejob.dev/notify-on",
    ]
