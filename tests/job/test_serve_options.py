"""Options of `onejob serve` about Jobs: they reach the settings of the server."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from onejob.cli.commands import serve
from onejob.control_plane import Settings
from onejob.planning.names import TRACKING, TRACKING_AS_PROPOSED


def settings_of(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str
) -> tuple[int, list[Settings]]:
    started: list[Settings] = []

    def start(settings: Settings, *_: object) -> int:
        started.append(settings)
        return 0

    monkeypatch.setattr(serve, "_run", start)
    result = CliRunner().invoke(serve.command, ["--data-dir", str(folder), *options])
    return result.exit_code, started


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], TRACKING),
        (["--tracking-finalizer-name", TRACKING_AS_PROPOSED], TRACKING_AS_PROPOSED),
        (["--tracking-finalizer-name", TRACKING], TRACKING),
    ],
)
def test_the_tracking_finalizer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], expected: str
) -> None:
    _, (settings,) = settings_of(monkeypatch, tmp_path, *options)
    assert settings.tracking_finalizer == expected


def test_unknown_tracking_finalizer_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, started = settings_of(
        monkeypatch, tmp_path, "--tracking-finalizer-name", "example.com/mine"
    )
    assert (code, started) == (2, [])


@pytest.mark.parametrize(
    ("options", "expected"), [([], None), (["--default-failed-pods-limit", "1"], 1)]
)
def test_the_limit_of_failed_pods(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], expected: int | None
) -> None:
    _, (settings,) = settings_of(monkeypatch, tmp_path, *options)
    assert settings.default_failed_pods_limit == expected


def test_gates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, (settings,) = settings_of(
        monkeypatch, tmp_path, "--feature-gates", "JobManagedBy=false,JobTrackingAnnotation=true"
    )
    assert not settings.gates.enabled("JobManagedBy")
    assert settings.gates.enabled("JobTrackingAnnotation")


def test_gates_of_kubernetes_that_change_nothing_are_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[Settings] = []

    def start(settings: Settings, *_: object) -> int:
        started.append(settings)
        return 0

    monkeypatch.setattr(serve, "_run", start)
    set_gates = "PodLevelResources=true,JobManagedBy=false,AllAlpha=false"
    arguments = ["--data-dir", str(tmp_path), "--feature-gates", set_gates]
    result = CliRunner().invoke(serve.command, arguments)
    assert result.exit_code == 0
    note = "feature gates that change nothing here: PodLevelResources, AllAlpha\n"
    assert note in result.stderr
    assert started[0].gates.overrides == {"JobManagedBy": False}


def test_a_gate_that_kubernetes_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, started = settings_of(monkeypatch, tmp_path, "--feature-gates", "NoSuchGate=true")
    assert (code != 0, started) == (True, [])
