"""Metrics from metrics.k8s.io, of a real server with a real process."""

import time

import pytest

from onejob.cli.sources.selection import sources
from onejob.cli.sources.usage import Usage, total, usage_of_nodes, usage_of_pod, usage_of_pods
from tests.cli.command_line import CommandLine


def test_the_use_of_pods_and_nodes_is_read_from_a_server(
    served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(served.home / "state"))
    made = served.run("create", "job", "measured", "--", "sleep", "600")
    assert made.returncode == 0, made.stderr
    where = sources(None, None)
    try:
        api = where.require_server()
        while not (pods := usage_of_pods(api, "default")):
            time.sleep(0.1)
        assert [name.startswith("measured-") for _, name in pods] == [True]
        [((namespace, name), usage)] = pods.items()
        assert usage.memory_bytes > 0
        assert list(usage_of_pod(api, namespace, name)) == ["main"]
        assert usage_of_pod(api, namespace, "absent") == {}
        assert all(node.memory_bytes > usage.memory_bytes for node in usage_of_nodes(api).values())
    finally:
        where.close()
        served.run("delete", "job/measured")


def test_usages_add_up() -> None:
    assert total([Usage(1, 2), Usage(30, 40)]) == Usage(31, 42)
    assert total([]) == Usage()
