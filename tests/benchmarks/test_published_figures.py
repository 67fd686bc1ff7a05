"""Published figures: they come from recorded runs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_published_figures_match_the_records() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "bench" / "publish.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
