"""Discovery of upstream's recorded cases and of the runners that replay them.

The cases are JSON files outside the project (`../shared/conformance` next to the checkout, or the
folder in `ONEJOB_CONFORMANCE`). They are never copied in; without them the conformance tests are
skipped with that reason.

To replay a file `x.json`, write `tests/conformance/run_x.py` with two functions:

    def run_case(case: Case) -> Verdict: ...
    def corruptions(case: Case) -> Iterator[tuple[str, Case]]: ...

`run_case` feeds the case to the real code (dispatching on `case["function"]`) and returns
`Passed()`, `Failed(why)` or `Skipped(reason)`; an exception counts as a failure. It must not change
the case and must not treat any case by name.

`corruptions` proves that the comparison covers all claimed values: for each expected value that
`run_case` compares it yields a label and a copy of the case in which just that value is wrong
(`with_value` helps). Labels name the kind of value (`errors[].detail`), not the case: for every
label of a file, every corrupted case must come out as Failed. A value that a case lacks yields
nothing for that case.

Nothing else is needed: `make conformance` and `test_conformance.py` find the module by its name.
`gates_of(case)` returns the feature gates under which a case was recorded.
"""

import copy
import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onejob.gates import DEFAULTS, FeatureGates
from tests.conformance.verdict import Case, Failed, Verdict

_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Runner:
    run_case: Callable[[Case], Verdict]
    corruptions: Callable[[Case], Iterator[tuple[str, Case]]]

    def judge(self, case: Case) -> Verdict:
        """Return the verdict of `run_case`; an exception of the code under test is a failure."""
        try:
            return self.run_case(case)
        except Exception as error:
            return Failed(f"raised {type(error).__name__}: {error}")


def folder() -> Path | None:
    """Return the folder of the cases, or None if this machine has none."""
    configured = os.environ.get("ONEJOB_CONFORMANCE")
    path = Path(configured) if configured else _REPOSITORY.parent / "shared" / "conformance"
    return path if path.is_dir() else None


def file_names() -> list[str]:
    """Return the file names without `.json`, sorted; empty if there is no folder."""
    found = folder()
    return sorted(path.stem for path in found.glob("*.json")) if found else []


def load(name: str) -> list[Case]:
    found = folder()
    assert found is not None, "load() without a conformance folder"
    cases: list[Case] = json.loads((found / f"{name}.json").read_text(encoding="utf-8"))
    for case in cases:
        # Rules have a place instead of a name.
        case.setdefault("name", f"{case.get('where')}: {case.get('rule')}")
    return cases


def runner_for(name: str) -> Runner | None:
    module_name = f"tests.conformance.run_{name}"
    if importlib.util.find_spec(module_name) is None:
        return None
    module = importlib.import_module(module_name)
    return Runner(module.run_case, module.corruptions)


def gates_of(case: Case) -> FeatureGates:
    recorded = case.get("featureGates") or {}
    return FeatureGates({name: on for name, on in recorded.items() if name in DEFAULTS})


def with_value(case: Case, path: tuple[str | int, ...], value: Any) -> Case:
    """Return a deep copy of the case with one value replaced (or added)."""
    changed = copy.deepcopy(case)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed
