"""The supervisor itself: small, alone, and honest about what it started."""

import json
import subprocess
import sys
from pathlib import Path

from onejob.node.supervisor.journal import Claim, Journal, Outcome
from onejob.node.supervisor_client import _PACKAGES

CLAIM = Claim("uid", "c", 0)
EXITED = Outcome("exited", 5.0, 3, alone=True)


def a_journal(path: Path, boot: str = "boot") -> Journal:
    return Journal(str(path / "claims"), boot)


def test_it_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import onejob.node.supervisor.main; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code, _PACKAGES],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(ran.stdout.split())
    assert loaded - set(sys.stdlib_module_names) <= {"onejob", "__main__"}
    assert not loaded & {"asyncio", "subprocess", "threading", "logging"}


def test_a_claim_is_on_disk_before_anything_is_done(tmp_path: Path) -> None:
    a_journal(tmp_path).claim(CLAIM, 7, "/folder")
    again = a_journal(tmp_path).find(CLAIM)
    assert again is not None
    assert (again.outcome, again.pid, again.mark, again.folder) == (None, 0, 7, "/folder")


def test_lines_of_earlier_versions_are_understood(tmp_path: Path) -> None:
    lines = [
        ["boot", "boot"],
        ["claim", *CLAIM, 7],
        ["end", *CLAIM, "exited", 5.0, 3, 0, "", ""],
    ]
    (tmp_path / "claims").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = a_journal(tmp_path).find(CLAIM)
    assert found is not None
    assert (found.mark, found.folder, found.outcome) == (7, "", Outcome("exited", 5.0, 3))


def test_what_became_of_an_attempt_is_remembered(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    attempt = journal.claim(CLAIM, 0)
    attempt.pid = 42
    journal.began(attempt)
    journal.end(attempt, EXITED)
    journal.flush()
    again = a_journal(tmp_path).find(CLAIM)
    assert again is not None
    assert (again.pid, again.start_ticks, again.outcome) == (42, attempt.start_ticks, EXITED)


def test_whatever_a_line_holds_it_is_read_back(tmp_path: Path) -> None:
    awkward = 'a "quoted\\ line"\nof\ttext, \u00e9\udc80'
    claim = Claim(awkward, awkward + "c", 2)
    how = Outcome("refused", 1_794_797_343.057973, 128, 9, awkward, awkward * 2)
    journal = a_journal(tmp_path)
    attempt = journal.claim(claim, 7, awkward + "/folder")
    attempt.pid = 42
    journal.began(attempt)
    journal.end(attempt, how)
    journal.flush()
    # The first reading is of single lines, the second of a file written anew.
    for _ in range(2):
        again = a_journal(tmp_path).find(claim)
        assert again is not None
        assert (again.mark, again.folder) == (7, awkward + "/folder")
        assert (again.pid, again.start_ticks, again.outcome) == (42, attempt.start_ticks, how)


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
    assert len((tmp_path / "claims").read_bytes()) < 500


def test_a_torn_last_line_is_ignored(tmp_path: Path) -> None:
    a_journal(tmp_path).claim(CLAIM, 0)
    with open(tmp_path / "claims", "ab") as file:
        file.write(b'["end","uid","c",0,"exi')
    again = a_journal(tmp_path).find(CLAIM)
    assert again is not None
    assert again.outcome is None


def test_another_boot_is_noticed(tmp_path: Path) -> None:
    assert not a_journal(tmp_path, "one").rebooted
    assert not a_journal(tmp_path, "one").rebooted
    assert a_journal(tmp_path, "two").rebooted
    assert json.loads((tmp_path / "claims").read_text().splitlines()[0]) == ["boot", "two"]
