"""`onejob envtest-assets`: launchers, started as controller-runtime's envtest starts them."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onejob.cli.envtest.flags import UnsupportedFlag, read_flags, serve_options
from onejob.cli.main import run_command
from onejob.controllers.selection import select_controllers
from tests.cli.command_line import CommandLine
from tests.cli.envtest_support import Api, Environment, free_port

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}
                        },
                    }
                },
            }
        ],
    },
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "pi"},
    "spec": {
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "pi", "image": "busybox"}]}
        }
    },
}


@pytest.fixture
def assets(onejob: CommandLine) -> Path:
    written = onejob.run("envtest-assets", "assets")
    assert written.returncode == 0, written.stderr
    return onejob.home / "assets"


@contextmanager
def started(
    onejob: CommandLine, assets: Path, name: str, *more: str
) -> Iterator[tuple[Environment, Api]]:
    environment = Environment(assets, onejob.home / name, onejob.environment)
    try:
        environment.start(*more)
        yield environment, environment.api("admin", "system:masters")
    finally:
        environment.stop()


def add_definition(api: Api) -> None:
    code, answer = api.send(
        "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION
    )
    assert code == 201, answer
    # envtest, too, waits until discovery lists it.
    while "example.com" not in str(api.send("GET", "/apis")):
        time.sleep(0.02)


def widget(size: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"size": size},
    }


def test_a_suite_can_use_custom_resources_and_jobs(onejob: CommandLine, assets: Path) -> None:
    with started(onejob, assets, "one") as (environment, api):
        add_definition(api)
        assert api.send("POST", WIDGETS, widget("large"))[0] == 422
        assert api.send("POST", WIDGETS, widget(3))[0] == 201
        code, job = api.send("POST", JOBS, JOB)
        assert code == 201, job
        assert api.send("GET", f"{JOBS}/pi")[1]["spec"] == job["spec"]
        # No controller and no node: as in envtest, a Job stays as it was created.
        assert api.send("GET", "/api/v1/pods")[1]["items"] == []
        assert api.send("GET", "/api/v1/nodes")[1]["items"] == []
        stopped = environment.stop()
    assert stopped == [(0, ""), (0, "")]
    assert not [path for path in environment.cert_dir.iterdir() if path.is_dir()]


def test_envtest_users_are_authorized_by_roles(onejob: CommandLine, assets: Path) -> None:
    with started(onejob, assets, "one") as (environment, _):
        code, answer = environment.api("eve", "visitors").send("GET", JOBS)
    assert code == 403
    assert 'User "eve" cannot list resource "jobs"' in answer["message"]


def test_two_environments_at_once_know_nothing_of_each_other(
    onejob: CommandLine, assets: Path
) -> None:
    with (
        started(onejob, assets, "one") as (one, api),
        started(onejob, assets, "two") as (_, other),
    ):
        assert api.send("POST", JOBS, JOB)[0] == 201
        assert other.send("GET", f"{JOBS}/pi")[0] == 404
        assert one.stop() == [(0, ""), (0, "")]
        assert other.send("POST", JOBS, JOB)[0] == 201


def test_state_is_not_kept_where_others_can_write(onejob: CommandLine, assets: Path) -> None:
    temporary = onejob.home / "tmp"
    temporary.mkdir(mode=0o700)
    settings = {**onejob.environment, "TMPDIR": str(temporary)}
    environment = Environment(assets, onejob.home / "one", settings)
    environment.cert_dir.chmod(0o777)
    try:
        environment.start()
        assert len(list(temporary.glob("onejob-envtest-*"))) == 1
        assert not list(environment.cert_dir.glob("onejob-envtest-*"))
    finally:
        environment.stop()
    assert not list(temporary.iterdir())


def test_flags_that_are_not_known_get_a_note(onejob: CommandLine, assets: Path) -> None:
    more = ("--max-requests-inflight=9", "--feature-gates=JobManagedBy=true,Other=true")
    with started(onejob, assets, "one", *more) as (environment, _):
        (code, errors), _ = environment.stop()
    assert code == 0
    assert errors.splitlines() == [
        "note: unknown flag --max-requests-inflight has no effect",
        "note: --feature-gates: unknown gate Other=true has no effect",
    ]


def test_jobs_complete_where_that_was_asked_for(onejob: CommandLine) -> None:
    written = onejob.run("envtest-assets", "--simulate-pods", "assets")
    assert written.returncode == 0, written.stderr
    with started(onejob, onejob.home / "assets", "one") as (_, api):
        assert api.send("POST", JOBS, JOB)[0] == 201
        while not api.send("GET", f"{JOBS}/pi")[1].get("status", {}).get("succeeded"):
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("program", "flag", "expected"),
    [("kube-apiserver", "insecure-port", False), ("etcd", "unsafe-no-fsync", True)],
)
def test_envtest_finds_in_the_help_which_flags_there_are(
    onejob: CommandLine, assets: Path, program: str, flag: str, expected: bool
) -> None:
    done = subprocess.run(
        [assets / program, "--help"], capture_output=True, text=True, env=onejob.environment,
        check=True, timeout=60,
    )  # fmt: skip
    assert bool(re.search(rf"(?m)^\s*--{flag}\b", done.stdout)) is expected


@pytest.mark.parametrize(
    ("program", "flag", "expected"),
    [
        ("kube-apiserver", "--insecure-port=8080", "only TLS is supported"),
        ("kube-apiserver", "--client-ca-file=/none/ca.crt", "cannot read /none/ca.crt"),
        ("kube-apiserver", "--secure-port=https", "expected a number"),
        ("etcd", "--listen-client-urls=unix:///etcd", "expected http://HOST:PORT"),
        ("etcd", "--listen-client-urls=http://127.0.0.1:99999", "cannot listen on"),
    ],
)
def test_invalid_flags_fail_with_one_line(
    onejob: CommandLine, assets: Path, program: str, flag: str, expected: str
) -> None:
    port = () if program == "etcd" or "port" in flag else (f"--secure-port={free_port()}",)
    done = subprocess.run(
        [assets / program, flag, *port], capture_output=True, text=True, timeout=60,
        env={**onejob.environment, "TMPDIR": str(onejob.home)}, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(onejob.home.glob("onejob-envtest-*"))


def test_the_folder_is_named_in_a_line_for_the_shell(onejob: CommandLine) -> None:
    written = onejob.run("envtest-assets", "my assets")
    assert written.stdout == f"export KUBEBUILDER_ASSETS='{onejob.home}/my assets'\n"
    assert onejob.run("envtest-assets", "my assets").returncode == 0


def test_programs_of_others_are_not_replaced(onejob: CommandLine) -> None:
    real = onejob.home / "etcd"
    real.write_bytes(b"\x7fELF")
    refused = onejob.run("envtest-assets", ".")
    assert refused.returncode == 2
    assert "was not written by this command" in refused.stderr
    assert real.read_bytes() == b"\x7fELF"


def test_kubectl_is_linked_from_elsewhere_on_the_path(onejob: CommandLine) -> None:
    folder = onejob.home / "bin"
    folder.mkdir()
    kubectl = folder / "kubectl"
    kubectl.write_text("#!/bin/sh\n")
    kubectl.chmod(0o755)
    onejob.run("envtest-assets", "assets", PATH=f"{onejob.home}/assets:{folder}")
    assert (onejob.home / "assets" / "kubectl").readlink() == kubectl
    without = onejob.run("envtest-assets", "others", PATH=str(onejob.home / "none"))
    assert without.stderr == "note: kubectl not found on the PATH; no link was created\n"
    assert not (onejob.home / "others" / "kubectl").exists()


def test_no_controllers_can_be_chosen() -> None:
    assert select_controllers("") == frozenset()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--a=b=c", "--d", "e", "--f", "--g"], {"a": "b=c", "d": "e", "f": "true", "g": "true"}),
        (["", "-v=2"], {"v": "2"}),
        (["--a=1", "--a=2"], {"a": "2"}),
    ],
)
def test_flags_are_read_as_gos(words: list[str], expected: dict[str, str]) -> None:
    assert dict(read_flags(words)) == expected


def test_a_word_without_a_flag_is_refused() -> None:
    with pytest.raises(UnsupportedFlag, match="'b' is not a flag"):
        read_flags(["--a=1", "b"])


@pytest.mark.parametrize(
    ("flags", "files", "listen", "options"),
    [
        ([], set(), "127.0.0.1:6443", ()),
        ([("bind-address", "::1"), ("secure-port", "1")], set(), "[::1]:1", ()),
        ([("cert-dir", "/c")], {"apiserver.crt"}, "127.0.0.1:6443", ()),
        (
            [("cert-dir", "/c")],
            {"apiserver.crt", "apiserver.key"},
            "127.0.0.1:6443",
            ("--tls-cert-file=/c/apiserver.crt", "--tls-private-key-file=/c/apiserver.key"),
        ),
        (
            [("cert-dir", "/c"), ("tls-cert-file", "/x"), ("tls-private-key-file", "/y")],
            {"apiserver.crt", "apiserver.key"},
            "127.0.0.1:6443",
            ("--tls-cert-file=/x", "--tls-private-key-file=/y"),
        ),
        (
            [("feature-gates", "A=true"), ("feature-gates", "C=true, B=false")],
            set(),
            "127.0.0.1:6443",
            ("--feature-gates=A=true,B=false",),
        ),
    ],
)
def test_what_flags_mean_for_serve(
    flags: list[tuple[str, str]], files: set[str], listen: str, options: tuple[str, ...]
) -> None:
    chosen = serve_options(flags, {"A", "B"}, files)
    plugins = "--enable-admission-plugins=DefaultTolerationSeconds,Priority"
    assert (chosen.listen, chosen.options) == (listen, (*options, plugins))


def test_plugins_that_are_switched_off_stay_off() -> None:
    off = [("disable-admission-plugins", "ServiceAccount,Priority")]
    assert serve_options(off, frozenset()).options == (
        "--enable-admission-plugins=DefaultTolerationSeconds",
    )


def test_unknown_admission_plugins_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data-dir", str(tmp_path), "--no-node", "--enable-admission-plugins=Priority,Other"]
    assert run_command(["serve", *words]) == 2
    assert capsys.readouterr().err == (
        "error: --enable-admission-plugins: unknown plugin Other; "
        "known: DefaultTolerationSeconds, Priority\n"
    )


def test_other_ways_to_authorize_get_a_note() -> None:
    chosen = serve_options([("authorization-mode", "AlwaysAllow")], frozenset())
    assert chosen.notes == (
        "--authorization-mode=AlwaysAllow has no effect: RBAC is always enabled",
    )
