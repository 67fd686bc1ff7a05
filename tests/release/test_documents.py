"""Manual pages, completions, bill of materials and checksums."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from onejob.cli.main import COMMANDS
from release.dist import write_shell_files
from release.manual import manual_pages
from release.sbom import locked_versions, sbom
from tests.release.support import SERVICE


def test_manual_has_a_page_for_every_command() -> None:
    pages = manual_pages("1.2.3")
    assert pages.keys() == {"onejob.1", *(f"onejob-{name}.1" for name in COMMANDS)}
    assert "onejob\\-validate" in pages["onejob.1"]
    assert "\\-\\-dry\\-run" in pages["onejob-create.1"]


def test_manual_escapes_what_roff_would_interpret() -> None:
    for name, page in manual_pages("1.2.3").items():
        for line in page.splitlines():
            assert not line.startswith("'"), name
            if line.startswith("."):
                assert line.split()[0] in {
                    ".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".BR", ".nf", ".fi",
                }, f"{name}: {line}"  # fmt: skip


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_reports_nothing_about_the_manual(tmp_path: Path) -> None:
    for name, page in manual_pages("1.2.3").items():
        (tmp_path / name).write_text(page)
    command = ["groff", "-man", "-Tutf8", "-ww", *map(str, tmp_path.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_archive_has_manual_and_completions_and_is_reproducible(tmp_path: Path) -> None:
    first, second = tmp_path / "1.tgz", tmp_path / "2.tgz"
    write_shell_files(first)
    write_shell_files(second)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        names = set(archive.getnames())
    completions = {"completions/onejob.bash", "completions/_onejob", "completions/onejob.fish"}
    assert completions | {"man/onejob.1", "man/onejob-run.1"} <= names


def test_bill_of_materials_lists_every_locked_dependency_with_its_own() -> None:
    dependencies = locked_versions(SERVICE)
    document = json.loads(sbom("1.2.3", dependencies))
    assert {part["name"]: part["version"] for part in document["components"]} == dependencies
    known = {part["bom-ref"] for part in document["components"]}
    own, *others = document["dependencies"]
    assert own["ref"] == "pkg:pypi/onejob@1.2.3"
    assert any(ref.startswith("pkg:pypi/apsw@") for ref in own["dependsOn"])
    assert {entry["ref"] for entry in others} == known
    assert all(set(entry["dependsOn"]) <= known for entry in others)
    assert sbom("1.2.3", dependencies) == sbom("1.2.3", dependencies)
