"""Kept runs: found by name and pruned by age."""

import asyncio
import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from onejob.cli.errors import CommandError
from onejob.cli.kept_runs import (
    Run,
    RunJob,
    create_folder,
    is_under_way,
    kept_runs,
    new_run_id,
    prune,
    run_end,
)
from onejob.cli.places import data_dir
from onejob.cli.sources.selection import sources
from tests.cli.build import NOON


def keep(runs: Path, day: int, salt: str, *jobs: str) -> Path:
    """Create a finished run of so many days ago."""
    started = NOON - timedelta(days=day)
    folder = create_folder(runs / new_run_id(started, salt))
    named = tuple(RunJob("default", name) for name in jobs)
    folder.record(Run(folder.path.name, started, named))
    (folder.path / "onejob.db").touch()
    folder.release()
    return folder.path


def test_kept_runs_come_newest_first(tmp_path: Path) -> None:
    oldest = keep(tmp_path, 2, "aaaa", "pi")
    newest = keep(tmp_path, 0, "bbbb", "pi", "e")
    middle = keep(tmp_path, 1, "cccc", "e")
    assert [folder for folder, _ in kept_runs(tmp_path)] == [newest, middle, oldest]


def test_a_folder_without_a_record_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "20260101-000000-dead").mkdir()
    (tmp_path / "20260101-000001-torn").mkdir()
    (tmp_path / "20260101-000001-torn" / "run.json").write_text("{")
    (keep(tmp_path, 0, "early", "none") / "onejob.db").unlink()
    keep(tmp_path, 1, "aaaa", "pi")
    assert [run.jobs[0].name for _, run in kept_runs(tmp_path)] == ["pi"]


def test_no_runs_at_all_is_an_empty_list(tmp_path: Path) -> None:
    assert list(kept_runs(tmp_path / "nowhere")) == []
    assert prune(tmp_path / "nowhere", NOON) == []


def test_runs_go_after_seven_days(tmp_path: Path) -> None:
    old = keep(tmp_path, 8, "aaaa", "pi")
    young = keep(tmp_path, 6, "bbbb", "pi")
    assert prune(tmp_path, NOON) == [old]
    assert not old.exists()
    assert young.exists()


def test_a_run_that_is_under_way_is_never_pruned(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / new_run_id(NOON - timedelta(days=30), "aaaa"))
    assert is_under_way(folder.path)
    assert prune(tmp_path, NOON) == []
    folder.release()
    assert not is_under_way(folder.path)
    assert prune(tmp_path, NOON) == [folder.path]


def test_kept_run_records_its_outcome(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / "run")
    run = Run("run", NOON, (RunJob("default", "pi"), RunJob("default", "e", "no such Secret")))
    folder.record(run)
    assert run_end(folder.path) is None
    stopping = replace(run, stopped_by="Ctrl-C", stopped_at=NOON + timedelta(seconds=5))
    folder.record(stopping)
    assert run_end(folder.path) is None, "its Pods may still run"
    folder.release()
    second = run_end(folder.path)
    assert second is not None, "it did not live to see the end of its Pods"
    assert (second.word, second.at) == ("Stopped", NOON + timedelta(seconds=5))
    folder.record(replace(stopping, finished_at=NOON + timedelta(seconds=7)))
    end = run_end(folder.path)
    assert end is not None
    assert (end.word, end.at) == ("Stopped", NOON + timedelta(seconds=7))
    assert end.cause == "it was stopped by Ctrl-C"
    assert end.of_job("default", "pi") == end
    blocked = end.of_job("default", "e")
    assert (blocked.word, blocked.cause) == ("Blocked", "no such Secret")


async def test_killed_run_is_lost_since_last_heartbeat(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / "run")
    folder.record(Run("run", NOON))
    os.utime(folder.path / "run.lock", (0, 0))
    alive = asyncio.ensure_future(folder.heartbeat())
    await asyncio.sleep(0)
    alive.cancel()
    folder.release()
    end = run_end(folder.path)
    assert end is not None
    assert end.word == "Lost"
    assert end.at.year > 1970


def test_a_run_that_cannot_be_read_is_named_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (keep(tmp_path / "runs", 0, "torn", "pi") / "onejob.db").write_bytes(b"no database" * 100)
    early = keep(tmp_path / "runs", 1, "early", "pi")
    where = sources(str(tmp_path), None)
    assert [api.folder for api in where.runs()] == [early]
    assert "cannot read run 20260101-120000.000-torn: " in capsys.readouterr().err


def test_pruning_of_runs_does_not_block(tmp_path: Path) -> None:
    for number in range(5):
        keep(tmp_path, 10, f"{number:04}", "pi")
    assert len(prune(tmp_path, NOON, limit=2)) == 2
    assert len(list(kept_runs(tmp_path))) == 3


def test_folders_are_private(tmp_path: Path) -> None:
    folder = keep(tmp_path / "runs", 0, "aaaa", "pi")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("chosen", "state_home", "expected"),
    [
        ("/data", "/xdg", "/data"),
        (None, "/xdg", "/xdg/onejob"),
        (None, "", "/home/me/.local/state/onejob"),
        (None, "relative", "/home/me/.local/state/onejob"),
    ],
)
def test_data_dir_follows_xdg_variable(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, state_home: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_STATE_HOME", state_home)
    assert str(data_dir(chosen).path) == expected


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_data_dir_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CommandError, match="cannot write state to"):
        data_dir(str(tmp_path / "x")).prepare()
