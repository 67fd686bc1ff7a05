"""Real Prometheus against a real `onejob serve`, run by `make prometheus`.

Every query of the dashboard and the alert rules must return data, and none may fail. The scrape
configuration is the one of docs/reference/metrics-and-events.md.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from onejob.api.access.admin_token import TOKEN_FILE
from onejob.cli.places import DataDir
from tests.cli.command_line import job_yaml
from tests.e2e.serving import Server, a_server

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs" / "monitoring" / "alerts.yaml"
BOARD = ROOT / "docs" / "monitoring" / "grafana.json"
PAGE = ROOT / "docs" / "reference" / "metrics-and-events.md"
_SECONDS = 120.0
#: The query of a silent alert is empty: the compared metrics must exist all the same.
_COMPARISON = re.compile(r"\s(==|!=|>=|<=|>|<)\s(?!.*\s(==|!=|>=|<=|>|<)\s)")
_CRONJOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: often}
spec:
  schedule: "@every 2s"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: busybox, command: ["true"]}]
"""


def main() -> int:
    missing = [name for name in ("prometheus", "promtool", "kubectl") if not shutil.which(name)]
    if missing:
        print(f"prometheus: skipped, there is no {', '.join(missing)}")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with a_server(folder / "data") as server, a_prometheus(folder, server) as url:
            wait_for_a_scrape(url)
            busy(server)
            problems = [*check_with_promtool(folder, server), *check_queries(url)]
            problems += check_rules(url)
    for problem in problems:
        print(f"FAILED {problem}")
    print("prometheus: " + (f"{len(problems)} problems" if problems else "all is well"))
    return 1 if problems else 0


def wait_for_a_scrape(url: str) -> None:
    give_up = time.monotonic() + _SECONDS
    while time.monotonic() < give_up:
        answer = _get(f"{url}/api/v1/query", query='up{job="onejob"} == 1')
        if answer is not None and answer["data"]["result"]:
            return
        time.sleep(0.5)
    raise AssertionError("the server was never scraped")


def busy(server: Server) -> None:
    """Cause every kind of counted event."""
    good, bad = job_yaml("good", "true"), job_yaml("bad", "exit 3", spec="backoffLimit: 0")
    server.kubectl("apply", "-f", "-", stdin=f"{good}---\n{bad}---\n{_CRONJOB}")
    # Kubernetes calls this an internal error, and so do we.
    wrong = yaml.safe_load(job_yaml("wrong", "true"))
    wrong["metadata"]["resourceVersion"] = "5"
    raw = ("create", "--raw", "/apis/batch/v1/namespaces/default/jobs", "-f", "-")
    server.kubectl(*raw, stdin=json.dumps(wrong), fails=True)


@contextmanager
def a_prometheus(folder: Path, server: Server) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    log = (folder / "prometheus.log").open("wb")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={write_config(folder, server)}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address={address}",
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    # A watch that stays open, as dashboards and informers have them.
    watch = subprocess.Popen(
        ["kubectl", "get", "jobs", "--watch"], stdout=subprocess.DEVNULL, env=server.environ()
    )
    try:
        yield f"http://{address}"
    finally:
        for started in (watch, process):
            started.terminate()
            started.wait(30)
        log.close()


def write_config(folder: Path, server: Server) -> Path:
    """Write the configuration of the page, with addresses filled in and a short interval."""
    [text] = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE.read_text(), re.DOTALL)
    place = DataDir(server.data_dir)
    kubeconfig = yaml.safe_load(server.kubeconfig.read_text())
    url = urllib.parse.urlsplit(kubeconfig["clusters"][0]["cluster"]["server"])
    for name, value in (
        ("127.0.0.1:7443", url.netloc),
        ("DATA_DIR", str(place.path)),
        ("TOKEN_FILE", str(place.server / TOKEN_FILE)),
    ):
        assert name in text, f"{PAGE.name} has no {name}"
        text = text.replace(name, value)
    config = yaml.safe_load(text)
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def check_with_promtool(folder: Path, server: Server) -> Iterator[str]:
    exposition = server.kubectl("get", "--raw", "/metrics")
    checks: list[tuple[list[str], str, tuple[int, ...]]] = [
        (["check", "config", str(folder / "prometheus.yml")], "", (0,)),
        (["check", "rules", str(RULES)], "", (0,)),
        # 3 means advice about names, which are upstream's.
        (["check", "metrics"], exposition, (0, 3)),
    ]
    for words, given, good in checks:
        done = subprocess.run(
            ["promtool", *words], input=given, capture_output=True, text=True, check=False
        )
        printed = done.stdout + done.stderr
        if done.returncode not in good or "error while linting" in printed:
            yield f"promtool {' '.join(words)}: {printed}"
        else:
            print(f"ok promtool {' '.join(words[:2])}")


def check_queries(url: str) -> Iterator[str]:
    for name, query in queries():
        answer: Any = None
        give_up = time.monotonic() + _SECONDS
        while time.monotonic() < give_up:
            answer = _get(f"{url}/api/v1/query", query=query)
            if answer is None or (answer["status"] == "success" and not answer["data"]["result"]):
                time.sleep(0.5)
                continue
            break
        if answer is None or answer["status"] != "success":
            yield f"{name}: {query}: {answer}"
        elif not answer["data"]["result"]:
            yield f"{name}: {query} finds nothing"
        else:
            print(f"ok {name}: {len(answer['data']['result'])} series")


def queries() -> Iterator[tuple[str, str]]:
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], _COMPARISON.split(rule["expr"])[0]


def check_rules(url: str) -> Iterator[str]:
    """Check that rules evaluate without errors, and that the alert of the failed Job fires."""
    give_up = time.monotonic() + _SECONDS
    while time.monotonic() < give_up:
        answer = _get(f"{url}/api/v1/rules")
        rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]
        states = {rule["name"]: rule["state"] for rule in rules}
        if states["JobsFailed"] == "firing" and all(rule["health"] == "ok" for rule in rules):
            break
        time.sleep(0.5)
    for rule in rules:
        if rule["health"] != "ok":
            yield f"{rule['name']}: {rule['health']}: {rule.get('lastError')}"
    if states["JobsFailed"] != "firing":
        yield f"JobsFailed is {states['JobsFailed']}"
    silent = {"OnejobDown", "CronJobWithoutSuccess", "JobQueueGrows", "DamagedDocuments"}
    for name in sorted(silent):
        if states[name] != "inactive":
            yield f"{name} is {states[name]}"
    print(f"ok alerts: {states}")


def _get(url: str, **parameters: str) -> Any:
    """Return the decoded response; None while Prometheus does not respond yet."""
    try:
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
