"""Execution of one scenario on one server."""

import json
from pathlib import Path
from typing import Any, Final

from tests.differential.registry import Scenario, area, namespace
from tests.differential.side import NODE, Side
from tests.differential.transports import Transport

RECORDED: Final = Path(__file__).parent / "recorded"

LogFileImport = list[dict[str, Any]]


async def play(name: str, scenario: Scenario, transport: Transport) -> LogFileImport:
    side = Side(transport, namespace(name))
    await _expect(
        side,
        side.path("namespaces"),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": side.namespace}},
    )
    await scenario(side)
    return side.transcript()


async def prepare(transport: Transport) -> None:
    """Create the node that scenarios run Pods on."""
    side = Side(transport, "default")
    await _expect(
        side,
        side.path("nodes"),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
    )


async def _expect(side: Side, path: str, document: dict[str, Any]) -> None:
    answer = await side.send("POST", path, document)
    assert answer.code == 201, answer


def load_recorded() -> dict[str, LogFileImport]:
    """Return the recorded transcripts of Kubernetes, by scenario."""
    found: dict[str, LogFileImport] = {}
    for path in sorted(RECORDED.glob("*.json")):
        found |= json.loads(path.read_text())["scenarios"]
    return found


def save_recorded(transcripts: dict[str, LogFileImport], release: str) -> None:
    """Write one file per area, one line per step."""
    by_area: dict[str, dict[str, LogFileImport]] = {}
    for name, transcript in transcripts.items():
        by_area.setdefault(area(name), {})[name] = transcript
    RECORDED.mkdir(exist_ok=True)
    for each, theirs in by_area.items():
        path = RECORDED / f"{each}.json"
        path.write_text(_lines(release, dict(sorted(theirs.items()))))


def _lines(release: str, transcripts: dict[str, LogFileImport]) -> str:
    parts = []
    for name, transcript in transcripts.items():
        steps = ",\n".join(f"  {_compact(step)}" for step in transcript)
        parts.append(f"{_compact(name)}:[\n{steps}\n]")
    return f'{{"release":"{release}","scenarios":{{\n' + ",\n".join(parts) + "\n}}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
