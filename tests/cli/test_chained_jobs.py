"""Jobs that wait for others in a run, and copies of the outputs of a kept run."""

import time
from pathlib import Path

import msgspec

from tests.build import Document, a_job, shell
from tests.cli.command_line import CommandLine


def wait_for(path: Path, text: str) -> None:
    give_up = time.monotonic() + 60
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < give_up, f"{path} has no {text!r}"
        time.sleep(0.02)


def write_jobs(onejob: CommandLine, *jobs: Document) -> str:
    listing = {"apiVersion": "v1", "kind": "List", "items": jobs}
    (onejob.home / "jobs.json").write_bytes(msgspec.json.encode(listing))
    return "jobs.json"


def a_chained_job(name: str, script: str, after: str = "") -> Document:
    metadata = {"annotations": {"onejob.dev/after": after}} if after else {}
    return a_job(name, shell(script), metadata=metadata)


def test_cp_copies_outputs_of_kept_run(onejob: CommandLine) -> None:
    job = a_chained_job("j", 'mkdir "$ONEJOB_OUTPUT/a"; echo hi > "$ONEJOB_OUTPUT/a/b"')
    assert onejob.run("run", write_jobs(onejob, job)).returncode == 0
    copied = onejob.run("cp", "job/j:", "to")
    assert copied.returncode == 0, copied.stderr
    assert (onejob.home / "to/a/b").read_text() == "hi\n"
    missing = onejob.run("cp", "job/j:other", "to")
    assert missing.returncode != 0
    assert "no outputs at other" in missing.stderr
    assert "expected job/NAME:PATH" in onejob.run("cp", "job/j", "to").stderr


def test_run_refuses_job_that_waits_for_absent_one(onejob: CommandLine) -> None:
    done = onejob.run("run", write_jobs(onejob, a_chained_job("b", "true", "a")))
    assert done.returncode == 2
    assert "waits for job a, which is not part of this run" in done.stderr


def test_resume_keeps_order_of_chained_jobs(onejob: CommandLine) -> None:
    folder = onejob.home
    wait = f"while [ ! -e {folder}/may-end ]; do sleep 0.05; done"
    path = write_jobs(
        onejob,
        a_chained_job("a", f"echo a >> {folder}/ledger"),
        a_chained_job(
            "b", f"echo begun >> {folder}/ledger; {wait}; echo b >> {folder}/ledger", "a"
        ),
        a_chained_job("c", f"echo c >> {folder}/ledger", "b"),
    )
    run = onejob.start("run", path)
    wait_for(folder / "ledger", "begun")
    run.kill()
    run.communicate()
    (folder / "may-end").touch()
    killed = onejob.run("runs").stdout.splitlines()[1].split()[0]
    done = onejob.run("run", "--resume", killed)
    assert done.returncode == 0, done.stderr
    written = (folder / "ledger").read_text().split()
    assert written.count("a") == 1
    assert written[-2:] == ["b", "c"]
