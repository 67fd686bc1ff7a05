"""The supervisor's journal: records are complete or absent afterwards, on any disk."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onejob.node.supervisor.journal import Attempt, Claim, Identity, Journal, Outcome, identity_of
from onejob.node.supervisor.processes import survivor
from onejob.node.supervisor.record_file import MAGIC, frame

CLAIM = Claim("uid", "c", 0)
EXITED = Outcome("exited", 5.0, 3, alone=True)
HERE = Identity("boot", 1, "2:3")


def a_journal(path: Path, identity: Identity = HERE) -> Journal:
    return Journal(str(path / "claims"), identity)


def found(path: Path, claim: Claim = CLAIM) -> Attempt:
    attempt = a_journal(path).find(claim)
    assert attempt is not None
    return attempt


def contents(path: Path) -> bytes:
    return (path / "claims").read_bytes()


def test_a_claim_is_on_disk_before_anything_is_done(tmp_path: Path) -> None:
    a_journal(tmp_path).claim(CLAIM, 7, "/folder")
    again = found(tmp_path)
    assert (again.outcome, again.pid, again.mark, again.folder) == (None, 0, 7, "/folder")


def test_outcome_of_attempt_is_persisted(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    attempt = journal.claim(CLAIM, 0)
    attempt.pid = 42
    journal.began(attempt)
    journal.end(attempt, EXITED)
    assert journal.flush()
    again = found(tmp_path)
    assert (again.pid, again.start_ticks, again.outcome) == (42, attempt.start_ticks, EXITED)


def test_journal_records_round_trip(tmp_path: Path) -> None:
    awkward = 'a "quoted\\ line"\nof\ttext, \u00e9\udc80'
    claim = Claim(awkward, awkward + "c", 2)
    how = Outcome("refused", 1_794_797_343.057973, 128, 9, awkward, awkward * 50)
    journal = a_journal(tmp_path)
    attempt = journal.claim(claim, 7, awkward + "/folder")
    attempt.pid = 42
    journal.began(attempt)
    journal.end(attempt, how)
    journal.flush()
    # The first reading is of single records, the second of a rewritten file.
    for _ in range(2):
        again = found(tmp_path, claim)
        assert (again.mark, again.folder) == (7, awkward + "/folder")
        assert (again.pid, again.start_ticks, again.outcome) == (42, attempt.start_ticks, how)


def test_fields_of_a_later_version_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_more(payload: bytes, slot_bytes: int = 0) -> bytes:
        return frame(payload[:-1] + b',"later":[1]}', slot_bytes)

    journal = a_journal(tmp_path)
    monkeypatch.setattr("onejob.node.supervisor.journal.frame", with_more)
    journal.end(journal.claim(CLAIM, 7), EXITED)
    journal.flush()
    assert contents(tmp_path).count(b'"later"') == 2
    monkeypatch.undo()
    again = found(tmp_path)
    assert (again.mark, again.outcome) == (7, EXITED)


def test_a_child_records_its_own_start_and_that_survives_a_rewrite(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    attempt = journal.claim(CLAIM, 0, by_child=True)
    child = os.fork()
    if child == 0:
        journal.record_own_start(CLAIM, os.getpid(), 12.5)
        os._exit(0)
    os.waitpid(child, 0)
    again = found(tmp_path)
    assert (again.pid, again.started_at) == (child, 12.5)
    assert again.start_ticks > 0
    # The second reading is of the file that the first has rewritten.
    assert found(tmp_path).start_ticks == again.start_ticks
    journal.child_settled(attempt)
    assert attempt.start_ticks == again.start_ticks


def test_the_file_is_not_replaced_while_a_child_has_yet_to_record_its_start(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    attempt = journal.claim(CLAIM, 0, by_child=True)
    for number in range(3000):
        journal.end(journal.claim(Claim(f"u{number}", "c", 0), 0), EXITED)
        journal.forget(f"u{number}")
    journal.record_own_start(CLAIM, 42, 12.5)
    assert found(tmp_path).pid == 42
    assert attempt.pid == 42


def test_a_withdrawn_claim_can_be_made_again(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.withdraw(journal.claim(CLAIM, 0))
    assert journal.flush()
    journal = a_journal(tmp_path)
    assert journal.find(CLAIM) is None
    journal.claim(CLAIM, 9)
    assert found(tmp_path).mark == 9


def test_a_pod_of_any_name_can_be_forgotten(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.claim(Claim('"', "c", 0), 0)
    journal.forget('"')
    journal.flush()
    assert not list(a_journal(tmp_path).each())


def test_a_forgotten_pod_leaves_no_trace_even_after_compaction(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.claim(Claim("kept", "c", 0), 0)
    for number in range(3000):
        journal.end(journal.claim(Claim(f"u{number}", "c", 0), 0), EXITED)
        journal.forget(f"u{number}")
    journal.flush()
    again = a_journal(tmp_path)
    assert [attempt.claim.uid for attempt in again.each()] == ["kept"]
    assert len(contents(tmp_path).rstrip(b"\0")) < 500


# --- damage


def test_of_a_torn_tail_every_cut_leaves_the_records_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hundreds of files: syncing is tested elsewhere.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    journal = a_journal(tmp_path)
    for number in range(3):
        journal.claim(Claim(f"u{number}", "c", 0), 0)
    whole = contents(tmp_path).rstrip(b"\0")
    last = whole.rindex(MAGIC)
    for cut in range(last, len(whole)):
        # A torn write is followed by preallocated space or by nothing.
        for rest in (b"", bytes(100)):
            (tmp_path / "claims").write_bytes(whole[:cut] + rest)
            again = a_journal(tmp_path)
            assert [attempt.claim.uid for attempt in again.each()] == ["u0", "u1"]
            assert not again.damaged


def test_records_after_torn_tail_overwrite_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_journal(tmp_path).claim(CLAIM, 0)
    torn = contents(tmp_path).rstrip(b"\0") + MAGIC + b" torn"
    (tmp_path / "claims").write_bytes(torn + bytes(4000))
    with no_space(monkeypatch):
        journal = a_journal(tmp_path)
        attempt = journal.find(CLAIM)
        assert attempt is not None
        journal.end(attempt, EXITED)
        assert journal.flush()
        assert b"torn" not in contents(tmp_path)
        assert found(tmp_path).outcome == EXITED


def test_damaged_record_is_reported_and_others_are_kept(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    for number in range(3):
        journal.claim(Claim(f"u{number}", "c", 0), 0)
    data = contents(tmp_path)
    (tmp_path / "claims").write_bytes(data.replace(b'"u1"', b'"!!"'))
    again = a_journal(tmp_path)
    assert [attempt.claim.uid for attempt in again.each()] == ["u0", "u2"]
    assert again.damaged


# --- short writes and a full disk


class no_space:
    """Context without free space: preallocated space can be written, but no file can grow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __enter__(self) -> None:
        pwrite = os.pwrite

        def full(fd: int, start: int, size: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def within(fd: int, data: bytes, offset: int) -> int:
            if offset + len(data) > os.fstat(fd).st_size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return pwrite(fd, data, offset)

        self._monkeypatch.setattr(os, "posix_fallocate", full)
        self._monkeypatch.setattr(os, "pwrite", within)

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()


def claim_until_full(journal: Journal) -> list[Attempt]:
    made: list[Attempt] = []
    while journal.trouble is None:
        claim = Claim(f"u{len(made)}", "c", 0)
        with contextlib.suppress(OSError):
            made.append(journal.claim(claim, 0, by_child=len(made) % 2 == 0))
    return made


def test_on_a_full_disk_claims_fail_and_the_ends_of_all_that_were_made_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = a_journal(tmp_path)
    with no_space(monkeypatch):
        made = claim_until_full(journal)
        assert made
        assert journal.trouble is not None
        for attempt in made:
            attempt.pid = 42
            journal.began(attempt)
            journal.end(attempt, EXITED._replace(message="\x01" * 1000))
        assert journal.flush()
        again = a_journal(tmp_path)
        outcomes = [attempt.outcome for attempt in again.each()]
        assert len(outcomes) == len(made)
        assert all(outcome and (outcome.code, outcome.alone) == (3, True) for outcome in outcomes)


def test_a_claim_that_failed_is_not_there_and_succeeds_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = a_journal(tmp_path)
    with no_space(monkeypatch):
        made = claim_until_full(journal)
    failed = Claim(f"u{len(made)}", "c", 0)
    assert journal.find(failed) is None
    assert a_journal(tmp_path).find(failed) is None
    journal = a_journal(tmp_path)
    journal.claim(failed, 5)
    assert journal.trouble is None
    assert found(tmp_path, failed).mark == 5


def test_a_journal_can_be_opened_on_a_full_disk_where_there_was_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with no_space(monkeypatch):
        journal = a_journal(tmp_path)
        with pytest.raises(OSError, match="No space left"):
            journal.claim(CLAIM, 0)
    journal.claim(CLAIM, 7)
    assert found(tmp_path).mark == 7


def test_the_boot_is_recorded_though_the_file_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = a_journal(tmp_path)
    journal.claim(CLAIM, 0)
    later = HERE._replace(boot="later")
    with no_space(monkeypatch):
        assert a_journal(tmp_path, later).rebooted
        journal = a_journal(tmp_path, later)
        journal.flush()
        journal.claim(Claim("new", "c", 0), 0)
        again = a_journal(tmp_path, later)
    assert {attempt.claim.uid: attempt.foreign for attempt in again.each()} == {
        "uid": True,
        "new": False,
    }


def short_writes(monkeypatch: pytest.MonkeyPatch, sizes: Callable[[], int]) -> None:
    pwrite = os.pwrite

    def short(fd: int, data: bytes, offset: int) -> int:
        return pwrite(fd, memoryview(data)[: sizes()], offset)

    monkeypatch.setattr(os, "pwrite", short)


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short_writes(monkeypatch, lambda: 7)
    journal = a_journal(tmp_path)
    for number in range(200):
        attempt = journal.claim(Claim(f"u{number}", "c", 0), 0, by_child=True)
        journal.record_own_start(attempt.claim, 42, 1.0)
        journal.end(attempt, EXITED)
    assert journal.flush()
    # Also by the one that rewrites the file.
    for _ in range(2):
        attempts = list(a_journal(tmp_path).each())
        assert len(attempts) == 200
        assert all(attempt.pid == 42 and attempt.outcome == EXITED for attempt in attempts)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_half_way_is_undone_and_later_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    journal = a_journal(tmp_path)
    first = journal.claim(CLAIM, 0)
    pwrite, failing = os.pwrite, True

    def halved(fd: int, data: bytes, offset: int) -> int:
        # The rollback works: zeros are written.
        if not failing or not bytes(data).strip(b"\0"):
            return pwrite(fd, data, offset)
        if len(data) < 60:
            raise OSError(error, os.strerror(error))
        return pwrite(fd, memoryview(data)[:-40], offset)

    monkeypatch.setattr(os, "pwrite", halved)
    before = contents(tmp_path)
    with pytest.raises(OSError, match=os.strerror(error)):
        journal.claim(Claim("u1", "c", 0), 0)
    assert contents(tmp_path) == before
    journal.end(first, EXITED)
    assert not journal.flush()
    assert contents(tmp_path) == before
    failing = False
    journal.claim(Claim("u2", "c", 0), 0)
    assert {attempt.claim.uid: attempt.outcome for attempt in a_journal(tmp_path).each()} == {
        "uid": EXITED,
        "u2": None,
    }


def test_unwritable_journal_is_replaced_by_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = a_journal(tmp_path)
    first = journal.claim(CLAIM, 0)
    monkeypatch.setattr(os, "pwrite", _broken_after(monkeypatch, 40))
    with pytest.raises(OSError, match="Input/output"):
        journal.claim(Claim("u1", "c", 0), 0)
    journal.end(first, EXITED)
    assert not journal.flush()
    monkeypatch.undo()
    assert journal.flush()
    assert [attempt.claim.uid for attempt in a_journal(tmp_path).each()] == ["uid"]
    assert found(tmp_path).outcome == EXITED


def _broken_after(monkeypatch: pytest.MonkeyPatch, size: int) -> Callable[[int, bytes, int], int]:
    pwrite = os.pwrite
    left: Iterator[int] = iter([size])

    def broken(fd: int, data: bytes, offset: int) -> int:
        for taken in left:
            return pwrite(fd, memoryview(data)[:taken], offset)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    return broken


@pytest.mark.parametrize("step", ["posix_fallocate", "pwrite", "fsync", "rename"])
def test_a_rewrite_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    journal = a_journal(tmp_path)
    for number in range(200):
        journal.claim(Claim(f"u{number}", "c", 0), 0)
    before = contents(tmp_path)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        assert len(list(a_journal(tmp_path).each())) == 200
    assert contents(tmp_path) == before
    assert len(list(a_journal(tmp_path).each())) == 200
    assert not (tmp_path / "claims.new").exists()


# --- identity


def test_reboot_is_reported_until_settled(tmp_path: Path) -> None:
    """If a server dies before it has recorded the losses, the next one must get them again."""
    later = HERE._replace(boot="later")
    assert not a_journal(tmp_path).rebooted
    assert not a_journal(tmp_path).rebooted
    assert a_journal(tmp_path, later).rebooted
    journal = a_journal(tmp_path, later)
    assert journal.rebooted
    journal.settle()
    assert not journal.rebooted
    assert journal.flush()
    assert not a_journal(tmp_path, later).rebooted


def test_another_boot_is_noticed_though_all_that_was_not_synced_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims are not synced, so all of them may be missing.

    The fact that some existed must not be.
    """
    synced = b""

    def sync(fd: int) -> None:
        nonlocal synced
        if os.path.isfile(f"/proc/self/fd/{fd}"):
            synced = os.pread(fd, 1 << 20, 0)

    monkeypatch.setattr(os, "fsync", sync)
    a_journal(tmp_path).claim(CLAIM, 7)
    (tmp_path / "claims").write_bytes(synced)
    journal = a_journal(tmp_path, HERE._replace(boot="later"))
    assert journal.rebooted
    assert journal.find(CLAIM) is None


@pytest.mark.parametrize(
    "elsewhere",
    [HERE._replace(boot="b"), HERE._replace(namespace=9), HERE._replace(folder="2:4")],
)
def test_processes_of_other_boot_namespace_or_folder_are_ignored(
    tmp_path: Path, elsewhere: Identity
) -> None:
    journal = a_journal(tmp_path)
    attempt = journal.claim(CLAIM, 0)
    attempt.pid = os.getpid()
    attempt.start_ticks = _own_start()
    assert survivor(attempt) == os.getpid()
    again = a_journal(tmp_path, elsewhere)
    (foreign,) = again.each()
    foreign.pid, foreign.start_ticks = os.getpid(), attempt.start_ticks
    assert survivor(foreign) == 0


def _own_start() -> int:
    stat = Path("/proc/self/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[19])


def test_a_moved_folder_is_the_same_and_a_copy_is_another(tmp_path: Path) -> None:
    original = tmp_path / "original"
    original.mkdir()
    before = identity_of(str(original))
    assert identity_of(str(original.rename(tmp_path / "moved"))) == before
    shutil.copytree(tmp_path / "moved", tmp_path / "copy")
    assert identity_of(str(tmp_path / "copy")) != before


# --- earlier versions


def test_lines_of_earlier_versions_are_understood(tmp_path: Path) -> None:
    gone, running = Claim("gone", "c", 0), Claim("running", "c", 1)
    lines = [
        ["boot", "boot"],
        ["claim", *CLAIM, 7],
        ["end", *CLAIM, "exited", 5.0, 3, 0, "", ""],
        ["claim", *gone, 7, "/folder"],
        ["forget", "gone"],
        ["claim", *running, 0, "/folder"],
        ["pid", *running, 42, 4321, 2.5],
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "claims").write_text(text + '["end","running","c",1,"exi')
    # The first reading is of the lines, the second of the file in the present format.
    for _ in range(2):
        journal = a_journal(tmp_path)
        assert not journal.rebooted
        assert journal.find(gone) is None
        first, second = journal.find(CLAIM), journal.find(running)
        assert first is not None
        assert second is not None
        assert (first.mark, first.folder, first.outcome) == (7, "", Outcome("exited", 5.0, 3))
        assert (second.pid, second.start_ticks, second.started_at) == (42, 4321, 2.5)
        assert (second.folder, second.outcome, second.foreign) == ("/folder", None, False)


def test_lines_of_earlier_versions_wait_for_room_to_be_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "claims").write_text('["boot","other"]\n["claim","uid","c",0,7]\n')
    with no_space(monkeypatch):
        journal = a_journal(tmp_path)
        assert journal.rebooted
        attempt = journal.find(CLAIM)
        assert attempt is not None
        journal.end(attempt, EXITED)
        assert not journal.flush()
        assert contents(tmp_path).startswith(b'["boot"')
    assert journal.flush()
    assert found(tmp_path).outcome == EXITED


def test_an_init_and_its_command_are_both_remembered(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    attempt = journal.claim(CLAIM, 0)
    attempt.pid = 42
    journal.began(attempt)
    journal.command_began(attempt, 43)
    journal.flush()
    # The first reading is of single records, the second of a rewritten file.
    for _ in range(2):
        again = a_journal(tmp_path).find(CLAIM)
        assert again is not None
        assert (again.pid, again.start_ticks) == (42, attempt.start_ticks)
        assert (again.command, again.command_ticks) == (43, attempt.command_ticks)
