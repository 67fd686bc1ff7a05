"""Consistency of the lock files in requirements/ with pyproject.toml. Nothing is downloaded."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
SERVICE = PROJECT["dependencies"]
WANTED = {
    "service.txt": SERVICE,
    "dev.txt": [*SERVICE, *PROJECT["optional-dependencies"]["dev"]],
    "build.txt": SETTINGS["build-system"]["requires"],
    "docs.txt": SETTINGS["dependency-groups"]["docs"],
}
#: Comment of an entry that is our own dependency. Build dependencies are read from standard input,
#: which has no name.
ASKED_FOR = re.compile(r"onejob \(pyproject\.toml(?::docs)?\)|# via -c requirements/dev\.txt\s*\Z")
MEND = "run make lock"


def pins(name: str) -> dict[str, list[tuple[str, bool]]]:
    """Return version and hash presence by package; some packages have several, by platform."""
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
def test_lock_file_has_no_unneeded_packages(name: str) -> None:
    """Each entry names the package that requires it."""
    direct = {canonicalize_name(Requirement(text).name) for text in WANTED[name]}
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"\n(?=[A-Za-z0-9])", text)
    for entry in entries:
        package = canonicalize_name(entry.partition("==")[0])
        by_us = ASKED_FOR.search(entry) is not None
        assert by_us == (package in direct), f"{name}: {package}: {MEND}"


@pytest.mark.parametrize("name", ["service.txt", "build.txt"])
def test_development_uses_the_same_versions(name: str) -> None:
    locked, development = pins(name), pins("dev.txt")
    differing = {
        package: (found, development.get(package))
        for package, found in locked.items()
        if development.get(package) != found
    }
    assert differing == {}, MEND


@pytest.mark.parametrize("name", ["Makefile", "Dockerfile"])
def test_the_package_and_its_dependencies_are_installed_as_locked(name: str) -> None:
    """Building a package in isolation would fetch unpinned build dependencies.

    Tools that only a few targets of `make` need are not locked.
    """
    text = (ROOT / name).read_text().replace("\\\n", " ")
    installs = re.findall(r"(?:\$\(PIP\)|pip (?:install|wheel))([^\n&|]*)", text)
    for options in installs:
        if "--requirement" in options:
            assert "--require-hashes" in options, options
        elif re.search(r" \.(\s|$)", options) and "'" not in options:
            assert "--no-deps" in options, options
            assert "--no-build-isolation" in options, options
        elif name == "Dockerfile":
            assert "--no-deps --no-index" in options, options
    assert sum("--requirement" in options for options in installs) >= 2
