"""Resource usage of running containers in `why` and `describe`."""

import json

from onejob.cli.reports.usage import container_usage_texts, pod_usage_text
from onejob.cli.sources.usage import Usage
from tests.cli.command_line import CommandLine, job_yaml

POD = {
    "spec": {
        "initContainers": [{"name": "proxy"}],
        "containers": [
            {"name": "main", "resources": {"limits": {"memory": "64Mi", "cpu": "1"}}},
            {"name": "unmeasured"},
        ],
    }
}


def test_each_measured_container_has_a_line_with_its_limits() -> None:
    usage = {"main": Usage(250, 34 << 20), "proxy": Usage(0, 3 << 20)}
    assert container_usage_texts(POD, usage) == [
        "container proxy uses 0m of CPU and 3Mi of memory",
        "container main uses 250m of CPU and 34Mi of memory (limit: 1 of CPU, 64Mi of memory)",
    ]
    assert pod_usage_text("a", usage) == "pod a uses 250m of CPU and 37Mi of memory"


def test_why_and_describe_show_usage_of_running_pod(served: CommandLine) -> None:
    (served.home / "busy.yaml").write_text(job_yaml("busy", "sleep 600"))
    assert served.run("apply", "-f", "busy.yaml").returncode == 0
    pod = _running_pod(served)
    assert f"container {pod['spec']['containers'][0]['name']} uses " in (
        served.run("why", f"pod/{pod['metadata']['name']}").stdout
    )
    assert f"  - pod {pod['metadata']['name']} uses " in served.run("why", "job/busy").stdout
    described = served.run("describe", f"pod/{pod['metadata']['name']}").stdout
    assert "\nUsage:\n  container " in described
    assert served.run("delete", "job/busy").returncode == 0


def _running_pod(served: CommandLine) -> dict[str, dict[str, list[dict[str, str]]]]:
    while True:
        pods = json.loads(served.run("get", "pods", "-o", "json").stdout)["items"]
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        if running:
            return running[0]  # type: ignore[no-any-return]
