"""Alert rules and the Grafana dashboard: all metrics that they query exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from onejob.metrics import Metrics

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "monitoring"
#: Metrics of Prometheus itself.
OWN = {"up"}
_WORD = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
#: Selectors, groupings, ranges and names of functions.
_NOT_METRICS = re.compile(r"\{[^}]*\}|\bsum by \([^)]*\)|\[[^\]]*\]|\b\w+(?=\()")


def expressions() -> list[str]:
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    board = json.loads((FOLDER / "grafana.json").read_text())
    return found + [target["expr"] for panel in board["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("expression", expressions())
def test_every_figure_that_is_asked_for_is_exported(expression: str) -> None:
    exported = {metric.name for metric in Metrics()} | OWN
    exported |= {f"{m.name}_bucket" for m in Metrics() if m.type == "histogram"}
    names = _WORD.findall(_NOT_METRICS.sub(" ", expression))
    assert names
    assert set(names) <= exported


@pytest.mark.parametrize("expression", expressions())
def test_labels_that_are_asked_for_exist(expression: str) -> None:
    labels = {label for metric in Metrics() for label in metric.label_names} | {"le", "job"}
    groups = re.findall(r"\bby \(([^)]*)\)", expression)
    asked = {label.strip() for group in groups for label in group.split(",")}
    asked |= set(re.findall(r"[{,]\s*(\w+)\s*=", expression))
    assert asked <= labels


def _promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: Debian's package prometheus has it")
    return found


def test_promtool_accepts_the_rules() -> None:
    subprocess.run(
        [_promtool(), "check", "rules", FOLDER / "alerts.yaml"], check=True, capture_output=True
    )


def test_alerts_fire_and_stay_silent_as_their_unit_tests_expect() -> None:
    tested = subprocess.run(
        [_promtool(), "test", "rules", FOLDER / "alerts_test.yaml"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_runbooks_of_alerts_exist() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            page, _, anchor = rule["annotations"].get("runbook", "").partition("#")
            if page:
                headings = (FOLDER.parents[1] / page).read_text().lower()
                assert f"## {anchor.replace('-', ' ')}" in headings, rule["alert"]


def test_promtool_reads_what_is_exported() -> None:
    metrics = Metrics()
    metrics.job_duration.observe(3.0, result="failed", owner="CronJob")
    metrics.jobs_finished.inc(completion_mode="Indexed", result="failed", reason="FailedIndexes")
    done = subprocess.run(
        [_promtool(), "check", "metrics"],
        input=metrics.exposition(),
        capture_output=True,
        text=True,
        check=False,
    )
    # 3 means advice about names, which are upstream's.
    assert done.returncode in (0, 3), done.stderr
    assert "error while linting" not in done.stderr


def test_an_alert_fires_and_another_does_not(tmp_path: Path) -> None:
    failed = 'job_controller_jobs_finished_total{result="failed",reason="DeadlineExceeded"}'
    case = {
        "rule_files": [str(FOLDER / "alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": failed, "values": "0x5 1x30"},
                    {"series": 'up{job="onejob"}', "values": "1x40"},
                ],
                "alert_rule_test": [
                    {
                        "eval_time": "10m",
                        "alertname": "JobsFailed",
                        "exp_alerts": [
                            {
                                "exp_labels": {
                                    "severity": "warning",
                                    "reason": "DeadlineExceeded",
                                },
                                "exp_annotations": {
                                    "summary": "Jobs failed in the last 15 minutes: "
                                    "DeadlineExceeded. onejob get jobs shows which."
                                },
                            }
                        ],
                    },
                    {"eval_time": "10m", "alertname": "OnejobDown", "exp_alerts": []},
                ],
            }
        ],
    }
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(case))
    done = subprocess.run(
        [_promtool(), "test", "rules", tmp_path / "case.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
