"""Resolution of `--on`."""

import json
from pathlib import Path

import pytest

from onejob.cli.errors import CommandError
from onejob.cli.kept_runs import RemotePlace
from onejob.cli.places import DataDir
from onejob.cli.remote.contexts import find_place
from onejob.cli.sources.remote_runs import connect


def write_kubeconfig(path: Path, *contexts: str, server: str = "https://example.com") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {
        "contexts": [{"name": c, "context": {"cluster": "c", "namespace": c}} for c in contexts],
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": "ca"}}],
    }
    path.write_text(json.dumps(config))
    (path.parent / "ca").write_text("PEM")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_find_place_returns_a_context_of_the_usual_kubeconfig(home: Path) -> None:
    usual = write_kubeconfig(home / ".kube" / "config", "prod")
    place = find_place("prod", "", DataDir(home / "state"))
    assert place == RemotePlace("prod", (str(usual),))
    assert connect(place, DataDir(home / "state")).namespace == "prod"


def test_find_place_refuses_slurm_unless_a_context_is_forced(home: Path) -> None:
    write_kubeconfig(home / ".kube" / "config", "slurm")
    with pytest.raises(CommandError, match="not available yet") as refused:
        find_place("slurm", "", DataDir(home / "state"))
    assert refused.value.exit_code == 2
    assert find_place("context:slurm", "", DataDir(home / "state")).name == "slurm"


def test_find_place_names_the_known_contexts_of_a_misspelt_one(home: Path) -> None:
    write_kubeconfig(home / ".kube" / "config", "prod", "test")
    with pytest.raises(CommandError) as refused:
        find_place("prdo", "", DataDir(home / "state"))
    assert "contexts: prod, test" in refused.value.lines[0]


def test_find_place_does_not_read_the_usual_kubeconfig_if_another_is_given(home: Path) -> None:
    write_kubeconfig(home / ".kube" / "config", "prod")
    other = write_kubeconfig(home / "other.yaml", "test")
    with pytest.raises(CommandError, match="no context of this name"):
        find_place("prod", str(other), DataDir(home / "state"))


def test_connect_uses_the_first_definition_of_several_files(home: Path) -> None:
    first = write_kubeconfig(home / "a" / "config", "a", server="https://a.example.com")
    second = write_kubeconfig(home / "b" / "config", "a", "b", server="https://b.example.com")
    place = find_place("b", f"{first}:{second}:{home / 'missing'}", DataDir(home / "state"))
    (home / "b" / "ca").unlink()
    connection = connect(place, DataDir(home / "state"))
    # Clusters are merged by name, and a file name is relative to the file that contains it.
    assert connection.server == "https://a.example.com"
    assert connection.namespace == "b"


def test_find_place_reports_an_unreadable_kubeconfig(home: Path) -> None:
    bad = home / "bad.yaml"
    bad.write_text("[")
    with pytest.raises(CommandError, match="not a kubeconfig"):
        find_place("prod", str(bad), DataDir(home / "state"))
