"""Freshness check of the generated schema, which is not committed and may be stale."""

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from build_schema import OWN_DEFINITIONS, SOURCES, TARGET, digest, is_out_of_date, write_schema

ROOT = Path(__file__).resolve().parent.parent
KINDS = Path("src/onejob/wire/kinds.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    for source in (KINDS, Path(OWN_DEFINITIONS)):
        (root / source).parent.mkdir(parents=True)
        (root / source).write_text((ROOT / source).read_text())
    return write_schema(root)


def test_schema_data_is_up_to_date(built: Path) -> None:
    assert (ROOT / TARGET).read_bytes() == built.read_bytes(), "run python build_schema.py"


def test_the_makefile_rebuilds_the_schema_after_changes_of_its_sources() -> None:
    (rule,) = re.findall(r"^\$\(SCHEMA\): (.*) \|", (ROOT / "Makefile").read_text(), re.M)
    assert rule.split() == list(SOURCES)


@pytest.mark.parametrize("source", SOURCES)
def test_a_schema_older_than_a_source_is_out_of_date_until_written(
    built: Path, tmp_path: Path, source: str
) -> None:
    shutil.copytree(built.parents[4], tmp_path, dirs_exist_ok=True)
    shutil.copy(ROOT / "build_schema.py", tmp_path)
    write_schema(tmp_path)
    assert not is_out_of_date(tmp_path)
    os.utime(tmp_path / TARGET, ns=(0, 0))
    assert is_out_of_date(tmp_path)
    for each in SOURCES:
        os.utime(tmp_path / each, ns=(0, 0))
    assert not is_out_of_date(tmp_path)
    os.utime(tmp_path / source, ns=(1, 1))
    assert is_out_of_date(tmp_path)
    # Its content is the same.
    write_schema(tmp_path)
    assert not is_out_of_date(tmp_path)
    (tmp_path / TARGET).unlink()
    assert is_out_of_date(tmp_path)


def test_the_data_is_small(built: Path) -> None:
    assert 50_000 < built.stat().st_size < 200_000


def test_every_reference_is_defined_and_every_definition_documented(built: Path) -> None:
    shapes, documentation = map(json.loads, gzip.decompress(built.read_bytes()).split(b"\n"))
    types = shapes["types"]
    assert types.keys() == documentation.keys()
    assert set(_references(types)) <= types.keys()
    job = documentation["io.k8s.api.batch.v1.JobSpec"]
    assert job.keys() - {""} == types["io.k8s.api.batch.v1.JobSpec"]["properties"].keys()
    assert all(job.values())


def test_only_reachable_definitions_are_kept() -> None:
    definitions: dict[str, Any] = {
        "a": {"type": ["object", "null"], "properties": {"x": {"$ref": "#/$defs/b"}}},
        "b": {"type": "string", "description": "text"},
        "c": {"type": "string"},
    }
    shapes, documentation = digest(definitions, ["a"])
    assert shapes == {
        "a": {"type": "object", "properties": {"x": {"$ref": "b"}}},
        "b": {"type": "string"},
    }
    assert documentation == {"a": {"": "", "x": ""}, "b": {"": "text"}}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [name for item in value.values() for name in _references(item)]
    return [name for item in value for name in _references(item)] if isinstance(value, list) else []
