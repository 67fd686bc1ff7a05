"""`onejob doctor`: reports damage of a server's state, and saves the intact part."""

import json
import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from onejob.client.base import Create, Selection
from onejob.node.supervisor.journal import Claim, Identity, Journal
from onejob.objects.meta import JOBS
from onejob.virtual_time import run_virtual
from tests.cli.command_line import CommandLine
from tests.upgrade.support import a_plane, job

pytestmark = pytest.mark.virtual_time

JOB_COUNT = 40


@pytest.fixture
def server(onejob: CommandLine) -> Path:
    """Return the folder of a stopped server."""
    folder = onejob.data_dir / "server"

    async def live() -> None:
        plane = await a_plane(folder)
        for number in range(JOB_COUNT):
            document = job(f"job-{number}", suspend=True)
            await plane.client.write(Create(JOBS, "default", document))
        await plane.stop()

    onejob.data_dir.mkdir(parents=True, mode=0o700)
    run_virtual(live())
    return folder


def change(server: Path, statement: str) -> None:
    connection = apsw.Connection(str(server / "onejob.db"))
    connection.execute(statement).fetchall()
    connection.close()


def damage_a_page(database: Path) -> int:
    """Damage one of the pages with documents; return its number."""
    connection = apsw.Connection(str(database))
    connection.execute("VACUUM")
    size = int(str(connection.pragma("page_size")))
    rows: Any = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = 'log' AND pagetype = 'leaf' ORDER BY pageno"
    ).fetchall()
    connection.close()
    page: int = rows[len(rows) // 2][0]
    data = bytearray(database.read_bytes())
    data[(page - 1) * size : page * size] = bytes([0xA5]) * size
    database.write_bytes(data)
    return page


def exported_jobs(path: Path) -> list[str]:
    items = json.loads(path.read_text())["items"]
    return [item["metadata"]["name"] for item in items if item["kind"] == "Job"]


def test_a_server_that_is_whole(onejob: CommandLine, server: Path) -> None:
    before = (server / "onejob.db").read_bytes()
    done = onejob.run("doctor", "--export", "whole.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "intact objects" in done.stdout
    assert len(exported_jobs(onejob.home / "whole.json")) == JOB_COUNT
    assert (server / "onejob.db").read_bytes() == before


def test_a_running_server_can_be_examined(served: CommandLine) -> None:
    done = served.run("doctor")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_document_that_cannot_be_read_is_named(onejob: CommandLine, server: Path) -> None:
    change(server, "UPDATE log SET value = x'7b' WHERE name = 'job-3' AND value IS NOT NULL")
    done = onejob.run("doctor", "--export", "whole.json")
    assert done.returncode == 1
    assert "problem: jobs.batch/default/job-3: its document" in done.stderr
    assert "restore a backup" in done.stderr
    saved = exported_jobs(onejob.home / "whole.json")
    assert len(saved) == JOB_COUNT - 1
    assert "job-3" not in saved


def test_damaged_pages_are_named_and_the_rest_is_saved(onejob: CommandLine, server: Path) -> None:
    page = damage_a_page(server / "onejob.db")
    done = onejob.run("doctor", "--export", "whole.json")
    assert done.returncode == 1
    assert f"page {page}" in done.stderr
    assert "Traceback" not in done.stderr
    saved = exported_jobs(onejob.home / "whole.json")
    assert 0 < len(saved) < JOB_COUNT


def test_a_log_that_contradicts_itself_is_named(onejob: CommandLine, server: Path) -> None:
    change(
        server,
        "INSERT INTO log SELECT max(revision) + 1, 999999, 'jobs.batch', 'default', 'job-5', 0,"
        " x'7b7d', NULL FROM log",
    )
    done = onejob.run("doctor")
    assert done.returncode == 1
    assert "jobs.batch/default/job-5 cannot follow" in done.stderr


def test_a_damaged_journal_is_named(onejob: CommandLine, server: Path) -> None:
    folder = server / "supervisor"
    folder.mkdir(mode=0o700)
    journal = Journal(str(folder / "claims"), Identity("boot"))
    for uid in ("uid-1", "uid-2"):
        journal.claim(Claim(uid, "main", 0), 0)
    assert onejob.run("doctor").returncode == 0
    data = (folder / "claims").read_bytes()
    (folder / "claims").write_bytes(data.replace(b"uid-1", b"uid-x"))
    done = onejob.run("doctor")
    assert done.returncode == 1
    assert "claims is damaged" in done.stderr


def test_invalid_database_is_rejected_with_one_line(onejob: CommandLine, server: Path) -> None:
    (server / "onejob.db").write_bytes(b"no database" * 1000)
    done = onejob.run("doctor")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_there_is_no_server_to_examine(onejob: CommandLine) -> None:
    refused = onejob.run("doctor")
    assert refused.returncode == 2
    assert "no server in" in refused.stderr


def test_a_changed_byte_that_still_reads_is_noticed(onejob: CommandLine, server: Path) -> None:
    change(
        server,
        "UPDATE log SET value = CAST(replace(value, 'true', 'trve') AS BLOB) WHERE name = 'job-3'",
    )
    done = onejob.run("doctor")
    assert done.returncode == 1
    assert "problem: jobs.batch/default/job-3: its document" in done.stderr


async def test_repair_keeps_intact_objects_and_damaged_file(
    onejob: CommandLine, server: Path
) -> None:
    change(server, "UPDATE log SET value = x'7b' WHERE name = 'job-3' AND value IS NOT NULL")
    damaged = (server / "onejob.db").read_bytes()
    done = onejob.run("doctor", "--repair")
    assert done.returncode == 0, done.stderr
    assert "lost: jobs.batch/default/job-3 (revision" in done.stdout
    assert (server / "onejob.db.damaged-1").read_bytes() == damaged
    assert onejob.run("doctor").returncode == 0
    assert "nothing to repair" in onejob.run("doctor", "--repair").stdout
    plane = await a_plane(server)
    listed = await plane.client.list(Selection(JOBS))
    assert len(listed.documents) == JOB_COUNT - 1
    await plane.stop()


def test_doctor_repair_reports_objects_that_cannot_be_named(
    onejob: CommandLine, server: Path
) -> None:
    damage_a_page(server / "onejob.db")
    done = onejob.run("doctor", "--repair", "--export", "whole.json")
    assert done.returncode == 0, done.stderr
    reported = re.search(
        "objects kept, (\\d+) lost, and up to (\\d+) more that cannot be identified",
        done.stdout,
    )
    assert reported is not None, done.stdout
    kept = exported_jobs(onejob.home / "whole.json")
    assert 0 < len(kept) < JOB_COUNT
    assert len(kept) + int(reported[1]) + int(reported[2]) >= JOB_COUNT
    assert onejob.run("doctor").returncode == 0


def test_a_repair_that_was_interrupted_is_completed(onejob: CommandLine, server: Path) -> None:
    database = server / "onejob.db"
    database.rename(server / "onejob.db.repaired")
    for command in ("doctor", "serve"):
        refused = onejob.run(command)
        assert refused.returncode != 0
        assert "was interrupted; complete it with onejob doctor --repair" in refused.stderr
        assert refused.stderr.count("\n") == 1
    done = onejob.run("doctor", "--repair")
    assert done.returncode == 0, done.stderr
    assert "completed an interrupted repair" in done.stdout
    assert database.exists()
    assert onejob.run("doctor").returncode == 0


def test_doctor_remove_deletes_only_the_named_damaged_object(
    onejob: CommandLine, server: Path
) -> None:
    for name in ("job-3", "job-4"):
        change(server, f"UPDATE log SET value = x'7b' WHERE name = '{name}' AND value IS NOT NULL")
    refused = onejob.run(
        "doctor", "--remove", "jobs.batch/default/job-3", "--remove", "jobs.batch/default/job-5"
    )
    assert refused.returncode == 2
    assert "job-5 is not a damaged object; no objects were removed" in refused.stderr
    done = onejob.run("doctor", "--remove", "jobs.batch/default/job-3")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^removed: jobs.batch/default/job-3 \(revision \d+\)$", done.stdout, re.M)
    done = onejob.run("doctor", "--export", "whole.json")
    assert "job-3" not in done.stderr
    assert "problem: jobs.batch/default/job-4: its document" in done.stderr
    assert len(exported_jobs(onejob.home / "whole.json")) == JOB_COUNT - 2


def test_doctor_remove_refuses_the_database_of_a_running_server(served: CommandLine) -> None:
    change(
        served.data_dir / "server",
        "UPDATE log SET value = x'7b' WHERE resource = 'services' AND name = 'kubernetes'",
    )
    refused = served.run("doctor", "--remove", "services/default/kubernetes")
    assert refused.returncode == 2
    assert "no objects were removed" in refused.stderr
    assert "is in use by another onejob" in refused.stderr


def test_a_running_server_is_not_repaired(served: CommandLine) -> None:
    refused = served.run("doctor", "--repair")
    assert refused.returncode == 2
    assert "is in use by another onejob" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_serve_fails_with_one_line_naming_damaged_object(onejob: CommandLine, server: Path) -> None:
    path = server / "onejob.db"
    damage_a_page(path)
    done = onejob.run("serve", "--listen", "127.0.0.1:0")
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert "onejob doctor lists damaged objects" in done.stderr
    assert "jobs.batch/default/job-" in done.stderr
