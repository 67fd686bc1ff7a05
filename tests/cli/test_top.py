"""`onejob top`: its contents, its layout, and drawing on a real terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from onejob.cli.display.quantities import memory_text
from onejob.cli.sources.usage import Usage
from onejob.cli.top.layout import as_lines
from onejob.cli.top.snapshot import TopSnapshot, in_order, take_snapshot
from tests.cli.command_line import CommandLine

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CREATED = "2026-01-01T11:00:00Z"


def a_pod(name: str, *, phase: str = "Running", job: str = "pi") -> dict[str, Any]:
    owners = [{"kind": "Job", "name": job, "uid": "u"}]
    metadata = {"name": name, "namespace": "default", "creationTimestamp": CREATED}
    return {
        "metadata": {**metadata, "ownerReferences": owners},
        "spec": {"nodeName": "here"},
        "status": {"phase": phase, "containerStatuses": [{"restartCount": 2}]},
    }


def a_job(name: str, *, created: str = CREATED, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"completions": 4}, "status": status}


def a_snapshot(pods: int = 3, **arguments: Any) -> TopSnapshot:
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    return take_snapshot(
        NOW,
        [{"metadata": {"name": "here"}, "status": {"capacity": capacity}}],
        [
            a_job("pi", active=pods, ready=pods, succeeded=1, failed=1),
            a_job("queued", created="2026-01-01T11:30:00Z"),
            a_job("done", conditions=[{"type": "Complete", "status": "True"}]),
        ],
        [*(a_pod(f"pi-{n}") for n in range(pods)), a_pod("pi-x", phase="Succeeded")],
        {"here": Usage(2100, 4 * 2**30)},
        {("default", f"pi-{n}"): Usage(100 + n, (10 - n) * 2**20) for n in range(2)},
        **arguments,
    )


def test_a_snapshot_as_text() -> None:
    assert as_lines(a_snapshot(), "cpu", 200) == [
        "NODE   CPU           MEMORY           PODS",
        "here   2.1/8 (26%)   4Gi/16Gi (25%)   3/110",
        "",
        "JOB              STATE     PODS   DONE   FAILED   CPU    MEMORY   AGE",
        "default/pi       Running   3      1/4    1        201m   19Mi     1h00m",
        "default/queued   Waiting   0      0/4    0        -      -        30m00s",
        "",
        "POD            STATE     RESTARTS   CPU    MEMORY   AGE",
        "default/pi-1   Running   2          101m   9.0Mi    1h00m".replace("9.0Mi", "9Mi  "),
        "default/pi-0   Running   2          100m   10Mi     1h00m",
        "default/pi-2   Running   2          -      -        1h00m",
    ]


@pytest.mark.parametrize(
    ("key", "first"),
    [("cpu", "pi-1"), ("memory", "pi-0"), ("name", "pi-0"), ("age", "pi-0")],
)
def test_sort_keys(key: str, first: str) -> None:
    assert in_order(a_snapshot().pods, key)[0].name == first
    assert [line.name for line in in_order(a_snapshot().jobs, "age")] == ["pi", "queued"]


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (20, 5), (132, 50), (1, 1)])
def test_it_fits_every_terminal(width: int, height: int) -> None:
    snapshot = a_snapshot(1000, notes=["a text that is rather long " * 10])
    lines = as_lines(snapshot, "cpu", width, height, "onejob top: the server")
    assert len(lines) <= height
    if width >= 80:
        assert max(map(len, lines)) <= width
        assert re.fullmatch(r"\.\.\. and \d+ more", lines[-1])


def test_memory_is_short() -> None:
    shown = [memory_text(n) for n in (0, 1024, 1_500_000, 2**30, 1_600_000_000, 2**60)]
    assert shown == ["0Ki", "1Ki", "1.4Mi", "1Gi", "1.5Gi", "1024Pi"]


@pytest.fixture(scope="module")
def busy(served: CommandLine) -> CommandLine:
    made = served.run("create", "job", "busy", "--", "sleep", "600")
    assert made.returncode == 0, made.stderr
    while '"usage":{' not in served.run("top", "-o", "json").stdout.replace(" ", ""):
        time.sleep(0.1)
    return served


def test_without_a_terminal_there_is_one_table(busy: CommandLine) -> None:
    done = busy.run("top")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^default/busy +Running +1 ", done.stdout, re.MULTILINE)
    assert re.search(r"^default/busy-\w+ +Running +0 +\d+m +\d", done.stdout, re.MULTILINE)
    assert "\x1b" not in done.stdout
    assert busy.run("top", "-n", "other", "--once").stdout.endswith("No active Jobs.\n")


def test_programs_get_json(busy: CommandLine) -> None:
    found = json.loads(busy.run("top", "-o", "json", "--sort", "name").stdout)
    [pod] = found["pods"]
    assert (pod["job"], pod["state"]) == ("busy", "Running")
    assert pod["usage"]["memoryBytes"] > 0
    assert found["nodes"][0]["usage"]["memoryBytes"] > 0
    assert found["jobs"][0]["completions"] == 1


def test_bad_options_and_no_server(busy: CommandLine, onejob: CommandLine) -> None:
    wrong = busy.run("top", "--sort", "size")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    absent = onejob.run("top")
    assert absent.returncode == 2
    assert "no onejob server" in absent.stderr


class _Screen:
    """`onejob top` on a terminal of its own."""

    def __init__(self, command_line: CommandLine, *words: str, columns: int, rows: int) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        environment = {**command_line.environment, "TERM": "xterm"}
        self.process = subprocess.Popen(
            command_line.arguments("top", *words),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        self.text = ""

    def until(self, pattern: str) -> str:
        give_up = time.monotonic() + 60
        while not re.search(pattern, self.text):
            assert time.monotonic() < give_up, self.text[-2000:]
            if select.select([self._master], [], [], 1)[0]:
                self.text += os.read(self._master, 65536).decode()
        return self.text

    def press(self, key: str) -> None:
        self.text = ""
        os.write(self._master, key.encode())

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)


def test_a_terminal_is_drawn_on_and_given_back(busy: CommandLine) -> None:
    screen = _Screen(busy, "--interval", "0.3", columns=60, rows=12)
    try:
        first = screen.until(r"default/busy-\w+")
        assert first.startswith("\x1b[?1049h")
        assert "sorted by cpu" in first
        drawn = [re.sub(r"\x1b\[[?\d]*\w", "", line) for line in first.split("\r\n")]
        assert max(map(len, drawn)) <= 60
        screen.press("m")
        screen.until("sorted by memory")
        screen.press("q")
        assert screen.process.wait(60) == 0
        assert "\x1b[?1049l" in screen.until(r"1049l")
        assert screen.settings == screen.before
    finally:
        screen.close()


def test_a_signal_gives_the_terminal_back_too(busy: CommandLine) -> None:
    screen = _Screen(busy, columns=80, rows=24)
    try:
        screen.until("default/busy")
        screen.process.send_signal(signal.SIGTERM)
        assert screen.process.wait(60) == 130
        screen.until(r"1049l")
        assert screen.settings == screen.before
    finally:
        screen.close()
