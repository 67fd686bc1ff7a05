"""`make conformance`: replay every case of every file; one line per file, then the sum."""

import sys

from tests.conformance.loader import file_names, folder, load, runner_for
from tests.conformance.verdict import Failed, Passed, Skipped


def main() -> int:
    if folder() is None:
        print("no conformance folder: set ONEJOB_CONFORMANCE to upstream's recorded cases")
        print("0 passed, 0 failed, 0 skipped")
        return 0
    total_passed = total_failed = total_skipped = 0
    for name in file_names():
        passed, failures, skips = _run_file(name)
        print(f"{name}: {passed} passed, {len(failures)} failed, {len(skips)} skipped")
        for line in failures:
            print(f"  FAILED  {line}")
        for line in skips:
            print(f"  skipped {line}")
        total_passed += passed
        total_failed += len(failures)
        total_skipped += len(skips)
    print(f"{total_passed} passed, {total_failed} failed, {total_skipped} skipped")
    return 1 if total_failed else 0


def _run_file(name: str) -> tuple[int, list[str], list[str]]:
    cases = load(name)
    runner = runner_for(name)
    if runner is None:
        return 0, [f"{case['name']}: no tests/conformance/run_{name}.py" for case in cases], []
    passed = 0
    failures: list[str] = []
    skips: list[str] = []
    for case in cases:
        match runner.judge(case):
            case Passed():
                passed += 1
            case Failed(why):
                failures.append(f"{case['name']}: {_short(why)}")
            case Skipped(reason):
                skips.append(f"{case['name']}: {reason}")
    return passed, failures, skips


def _short(text: str) -> str:
    return text if len(text) <= 400 else text[:400] + "…"


if __name__ == "__main__":
    sys.exit(main())
