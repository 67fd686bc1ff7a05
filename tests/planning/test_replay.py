"""Planner decisions: the same as those recorded by an earlier version."""

from collections import Counter
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from onejob.objects.job import Job
from onejob.planning.job.counting import JobPods
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import Observed, Plan
from onejob.planning.job.planner import plan_job
from sim.journal import entries as journal_entries
from sim.journal.__main__ import KEPT, explained
from sim.journal.entries import differences
from sim.journal.recording import Recorder, read_journal, write_journal
from sim.world import simulate


def test_recorded_decisions_are_made_again() -> None:
    """If this fails, see `make replay`. If the change was meant: `make replay-record`."""
    recorded = read_journal(KEPT)
    assert [(number, explained(entry, now)) for number, entry, now in differences(recorded)] == []


def test_the_kept_journal_asks_every_planner_much() -> None:
    recorded = read_journal(KEPT)
    asked = Counter(entry.planner for entry in recorded)
    assert set(asked) == {"job", "cronjob history", "cronjob status", "cronjob start"}
    jobs = [entry.decision for entry in recorded if entry.planner == "job"]
    for part in ("creations", "deletions", "fate", "removals", "settled", "skipped"):
        assert any(decision.get(part) for decision in jobs), part
    starts = [entry.decision for entry in recorded if entry.planner == "cronjob start"]
    assert any(decision["start"] for decision in starts)


def test_a_changed_decision_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(
        job: Job, census: JobPods, observed: Observed, now: datetime, settings: Settings
    ) -> Plan:
        fewer = msgspec.structs.replace(settings, max_pod_changes=1)
        return plan_job(job, census, observed, now, fewer)

    monkeypatch.setattr(journal_entries, "plan_job", changed)
    found = list(differences(read_journal(KEPT)))
    assert found
    lines = [line for _, entry, now in found for line in explained(entry, now)]
    assert any(line.startswith("creations was") for line in lines)


def test_a_recording_is_replayed_without_differences(tmp_path: Path) -> None:
    recorder = Recorder()
    with recorder.listening():
        simulate(2)
    assert recorder.asked >= len(recorder.entries) > 0
    write_journal(tmp_path / "journal", recorder.entries)
    assert list(differences(read_journal(tmp_path / "journal"))) == []


def test_a_new_field_that_is_null_is_no_change() -> None:
    entry = next(one for one in read_journal(KEPT) if one.decision and one.planner == "job")
    entry.decision["of a later version"] = None
    assert list(differences([entry])) == []
    entry.decision["of a later version"] = 1
    assert len(list(differences([entry]))) == 1
