"""Freshness check of the generated schema, which is not committed and may be stale."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from build_schema import OWN_DEFINITIONS, TARGET, digest, write_schema

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
