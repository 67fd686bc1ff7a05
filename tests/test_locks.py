"""The lock files in requirements/ are in step with pyproject.toml. Nothing is downloaded."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVICE = PROJECT["dependencies"]
WANTED = {
    "service.txt": SERVICE,
    "dev.txt": [*SERVICE, *PROJECT["optional-dependencies"]["dev"]],
}
MEND = "run make lock"


def pins(name: str) -> dict[str, list[tuple[str, bool]]]:
    """Versions by package, and whether each has a hash; some have several, by platform."""
    found: dict[str, list[tuple[str, bool]]] = {}
    text = (ROOT / "requirements" / name).read_text()
    for entry in re.split(r"\n(?=[A-Za-z0-9])", text):
        pinned = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", entry)
        assert pinned is not None, f"{name}: {entry[:80]!r} is not pinned"
        package = canonicalize_name(pinned[1])
        found.setdefault(package, []).append((pinned[2], "--hash=sha256:" in entry))
    return found


@pytest.mark.parametrize("name", WANTED)
def test_every_dependency_is_pinned_to_a_version_that_is_asked_for(name: str) -> None:
    locked = pins(name)
    for text in WANTED[name]:
        wanted = Requirement(text)
        package = canonicalize_name(wanted.name)
        assert package in locked, f"{name} lacks {package}: {MEND}"
        for version, _ in locked[package]:
            assert version in wanted.specifier, f"{name}: {package} {version}, not {text}: {MEND}"


@pytest.mark.parametrize("name", WANTED)
def test_every_pin_has_hashes(name: str) -> None:
    without = [package for package, found in pins(name).items() if not all(h for _, h in found)]
    assert without == []


@pytest.mark.parametrize("name", WANTED)
def test_nothing_is_pinned_that_nobody_needs(name: str) -> None:
    """Each entry says who needs it."""
    direct = {canonicalize_name(Requirement(text).name) for text in WANTED[name]}
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"\n(?=[A-Za-z0-9])", text)
    for entry in entries:
        package = canonicalize_name(entry.partition("==")[0])
        by_us = "onejob (pyproject.toml)" in entry
        assert by_us == (package in direct), f"{name}: {package}: {MEND}"


def test_development_uses_the_versions_of_the_service() -> None:
    service, development = pins("service.txt"), pins("dev.txt")
    differing = {
        package: (found, development.get(package))
        for package, found in service.items()
        if development.get(package) != found
    }
    assert differing == {}, MEND
