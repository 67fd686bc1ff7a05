"""Installation manifests of the controller: valid, with exactly the permissions that it uses."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from onejob.cluster.manifests import Installation, manifests
from onejob.cluster.permissions import questions
from tests.cli.command_line import ROOT, QuickCommandLine

EVERYWHERE = Installation("onejob-system", "example.com/onejob:1", "onejob.dev/job-controller")
SOMEWHERE = Installation("ours", "example.com/onejob:1", "example.com/jobs", ("a", "b"), 3)
MIRRORING = Installation("ours", "example.com/onejob:1", "x.com/y", ("a", "b"), 3, mirror=True)
WORKFLOWS = Installation("ours", "example.com/onejob:1", "x.com/y", ("a",), workflows=True)


@pytest.mark.parametrize("installation", [EVERYWHERE, SOMEWHERE, MIRRORING, WORKFLOWS])
def test_they_are_valid(installation: Installation) -> None:
    for document in manifests(installation):
        kubernetes_validate.validate(document, "1.32", strict=True)


@pytest.mark.parametrize("installation", [EVERYWHERE, SOMEWHERE, MIRRORING, WORKFLOWS])
def test_manifests_grant_exactly_required_permissions(installation: Installation) -> None:
    documents = manifests(installation)
    granted = set()
    for role in documents:
        if role["kind"] in ("Role", "ClusterRole"):
            for rule in role["rules"]:
                (group,), (resource,) = rule["apiGroups"], rule["resources"]
                namespace = role["metadata"].get("namespace", "")
                granted |= {(verb, group, resource, namespace) for verb in rule["verbs"]}
    asked = {
        (question.verb, question.need.group, question.need.path, question.namespace)
        for question in questions(
            installation.watched,
            installation.namespace,
            leader_elect=True,
            mirror=installation.mirror,
            workflows=installation.workflows,
        )
    }
    assert granted == asked
    assert "*" not in str(granted)


@pytest.mark.parametrize("installation", [EVERYWHERE, SOMEWHERE, MIRRORING, WORKFLOWS])
def test_each_role_is_bound_to_the_account(installation: Installation) -> None:
    documents = manifests(installation)
    roles = [d["metadata"] for d in documents if d["kind"] in ("Role", "ClusterRole")]
    bindings = [d for d in documents if d["kind"].endswith("Binding")]
    assert [binding["metadata"] for binding in bindings] == roles
    (account,) = [d["metadata"] for d in documents if d["kind"] == "ServiceAccount"]
    for binding in bindings:
        assert binding["subjects"] == [
            {
                "kind": "ServiceAccount",
                "name": account["name"],
                "namespace": account["namespace"],
            }
        ]


def deployment(installation: Installation) -> dict[str, Any]:
    (found,) = [d for d in manifests(installation) if d["kind"] == "Deployment"]
    return found


def test_the_deployment_is_careful() -> None:
    spec = deployment(EVERYWHERE)["spec"]
    assert spec["replicas"] == 2
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_manifest_arguments_are_valid_command_options(tmp_path: Path) -> None:
    arguments = deployment(MIRRORING)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[0] == "controller"
    assert "--leader-elect" in arguments
    assert {"--namespace=a", "--namespace=b", "--mirror"} <= set(arguments)
    # All options are parsed: the only error is that there is no cluster here.
    result = QuickCommandLine(tmp_path).run(*arguments)
    assert result.returncode == 2
    assert "no kubeconfig specified" in result.stderr


def test_the_command_prints_them_as_yaml(tmp_path: Path) -> None:
    result = QuickCommandLine(tmp_path).run(
        "manifests", "--image", "example.com/onejob:1", "--namespace", "ours",
        "--manager-name", "example.com/jobs", "--watch", "a", "--watch", "b", "--replicas", "3",
    )  # fmt: skip
    assert result.returncode == 0
    assert list(yaml.safe_load_all(result.stdout)) == list(manifests(SOMEWHERE))
    assert not re.search(r"[&*]id\d", result.stdout)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--image"),
        (("--image", ""), "invalid image"),
        (("--image", "x", "--namespace", "A"), "invalid namespace 'A'"),
        (("--image", "x", "--watch", "a/b"), "invalid namespace 'a/b'"),
        (("--image", "x", "--manager-name", "x"), "use a domain and a path"),
    ],
)
def test_invalid_options_fail_with_one_line(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    result = QuickCommandLine(tmp_path).run("manifests", *words)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_image_is_built_from_files_that_are_there() -> None:
    """No image is built here; only its copied files and its command are compared."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [
        word
        for line in lines
        if line.startswith("COPY") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored
    user = deployment(EVERYWHERE)["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in lines
