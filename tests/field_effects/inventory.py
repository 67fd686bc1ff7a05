"""The inventory of fields: the script that writes the page, and its rows."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def _load_script() -> ModuleType:
    script = ROOT / "docs" / "reference" / "write_fields.py"
    spec = importlib.util.spec_from_file_location("write_fields", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT: Any = _load_script()
