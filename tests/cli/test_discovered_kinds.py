"""Discovery: commands get kinds that are not built in from the server."""

from pathlib import Path

import pytest

from onejob.cli.errors import CommandError
from onejob.cli.known_kinds import BUILT_IN, KnownKinds
from onejob.cli.sources.discovery import discovered
from onejob.cli.sources.http_api import open_http_api
from onejob.testing import OnejobServer
from onejob.wire.kinds import Kind
from tests.cli.command_line import CommandLine

WIDGETS = Kind("example.com", "v1", "Widget", "widgets", "widget", short_names=("wd",))
MANIFEST = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 1}\n"


def test_a_kind_that_only_the_server_knows_can_be_named(
    onejob: CommandLine, tmp_path: Path
) -> None:
    server = OnejobServer(tmp_path / "server", "simulated")
    try:
        kubeconfig = ("--kubeconfig", str(server.kubeconfig))
        (onejob.home / "widget.yaml").write_text(MANIFEST)
        refused = onejob.run("create", "-f", "widget.yaml", *kubeconfig)
        assert refused.returncode == 2
        assert "unsupported kind example.com/v1 Widget" in refused.stderr
        server._loop.call_soon_threadsafe(server._server.plane.service.kinds.add, WIDGETS)
        created = onejob.run("create", "-f", "widget.yaml", *kubeconfig)
        assert created.stdout == "widget.example.com/a created\n", created.stderr
        assert "a" in onejob.run("get", "wd", *kubeconfig).stdout
        named = onejob.run("get", "widgets.example.com", "a", "-o", "name", *kubeconfig)
        assert named.stdout == "widget.example.com/a\n"
        deleted = onejob.run("delete", "widget/a", *kubeconfig)
        assert deleted.stdout == 'widget.example.com "a" deleted\n'
    finally:
        server.stop()


def test_discovery_is_used_only_for_unknown_kinds(tmp_path: Path) -> None:
    asked: list[str] = []

    def discover() -> list[Kind]:
        asked.append("once")
        return [WIDGETS]

    known = KnownKinds(discover)
    assert known.named("jobs").resource == "jobs.batch"
    assert known.find("v1", "Pod") is not None
    assert asked == []
    assert known.named("WD") is WIDGETS
    assert known.named("widgets.v1.example.com") is WIDGETS
    with pytest.raises(CommandError, match="unknown kind 'gadgets'"):
        known.named("gadgets")
    assert asked == ["once"]


def test_discovery_matches_built_in_kinds(tmp_path: Path) -> None:
    server = OnejobServer(tmp_path / "server", "simulated")
    try:
        api = open_http_api(server.kubeconfig, "")
        found = {kind.resource: kind for kind in discovered(api)}
        api.close()
    finally:
        server.stop()
    job, known = found["jobs.batch"], BUILT_IN.named("jobs")
    assert (job.kind, job.singular, job.namespaced, job.verbs, job.categories) == (
        known.kind, known.singular, known.namespaced, known.verbs, known.categories,
    )  # fmt: skip
