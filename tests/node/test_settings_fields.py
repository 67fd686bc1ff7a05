"""Effect of each field that takes variables and files from other objects, without processes."""

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.schema.schema import load_definitions
from onejob.node.removal import remove_trees
from onejob.node.runtime import NodeContext
from onejob.node.setup.environment import CONFIG_MAPS, SECRETS, ConfigProblem, environment
from onejob.node.setup.tokens import TokenWanted
from onejob.node.setup.volumes import VolumeProblem, container_mounts, settings_in_volumes
from onejob.objects.meta import Key
from onejob.objects.pod_spec import NodePod, read_node_pod
from tests.node.support import a_pod, with_spec

NODE = NodeContext("node", "127.0.0.1")
OBJECTS = {
    (CONFIG_MAPS, "c"): {"a": b"1", "b": b"2"},
    (SECRETS, "s"): {"k": b"hidden"},
}


@pytest.fixture(autouse=True)
def _volumes_are_removed(tmp_path: Path) -> Iterator[None]:
    """Unmount the volumes in memory that hold Secrets: pytest could not remove its folders."""
    yield
    remove_trees([str(tmp_path)])


class Settings:
    """The ConfigMap `c` and the Secret `s`."""

    def values(self, key: Key) -> Mapping[str, bytes] | None:
        return OBJECTS.get((key.resource, key.name))


def a_view(pod: dict[str, Any]) -> NodePod:
    return read_node_pod(msgspec.json.encode(pod))


def variables(**fields: Any) -> dict[str, str]:
    pod = a_view(a_pod("true", **fields))
    found = environment(pod, pod.spec.containers[0], {}, Settings(), NODE, Path("/nonexistent"))
    return {name: value for name, value in found.items() if name not in ("HOME", "HOSTNAME")}


def one(kind: str, **reference: Any) -> dict[str, str]:
    return variables(env=[{"name": "X", "valueFrom": {kind: reference}}])


def files(tmp_path: Path, volume: dict[str, Any], **container: Any) -> dict[str, tuple[str, int]]:
    """Return content and mode of each file of a volume, by its path."""
    mounts = [{"name": "v", "mountPath": "/data"}]
    document = a_pod("true", volumeMounts=mounts, **container)
    document["metadata"]["labels"] = {"app": "x"}
    pod = a_view(with_spec(document, volumes=[{"name": "v", **volume}]))
    (container_view,) = pod.spec.containers
    (mount,) = container_mounts(pod, container_view, tmp_path, Settings(), NODE, {}, [])
    top = Path(mount.source)
    return {
        str(path.relative_to(top)): (path.read_text(), stat.S_IMODE(path.stat().st_mode))
        for path in sorted(top.rglob("*"))
        if path.is_file() and not path.relative_to(top).parts[0].startswith("..")
    } | {
        str(path.relative_to(top) / inner.relative_to(path)): (
            inner.read_text(),
            stat.S_IMODE(inner.stat().st_mode),
        )
        for path in sorted(top.iterdir())
        if path.is_dir() and not path.name.startswith("..")
        for inner in path.rglob("*")
        if inner.is_file()
    }


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [("configMapKeyRef", "c", "a", "1"), ("secretKeyRef", "s", "k", "hidden")],
)
def test_variable_comes_from_the_named_key_unless_it_is_missing_and_optional(
    kind: str, name: str, key: str, value: str
) -> None:
    assert one(kind, name=name, key=key)["X"] == value
    assert "X" not in one(kind, name="no", key=key, optional=True)
    with pytest.raises(ConfigProblem):
        one(kind, name=name, key="no")


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [("configMapRef", "c", {"p_a": "1", "p_b": "2"}), ("secretRef", "s", {"p_k": "hidden"})],
)
def test_all_variables_of_an_object_get_its_prefix_unless_it_is_missing_and_optional(
    kind: str, name: str, expected: dict[str, str]
) -> None:
    found = variables(envFrom=[{"prefix": "p_", kind: {"name": name}}])
    assert expected.items() <= found.items()
    absent = variables(envFrom=[{"prefix": "p_", kind: {"name": "no", "optional": True}}])
    assert not any(variable.startswith("p_") for variable in absent)
    with pytest.raises(ConfigProblem):
        variables(envFrom=[{kind: {"name": "no"}}])


CPU = {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}
LABEL = {"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}}
AMOUNT = {"path": "cpu", "resourceFieldRef": CPU}
RENAMED = [{"key": "k", "path": "q"}]
PICKED = [{"key": "a", "path": "x/y", "mode": 0o400}]


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (
            {"configMap": {"name": "c", "defaultMode": 0o600}},
            {"a": ("1", 0o600), "b": ("2", 0o600)},
        ),
        ({"configMap": {"name": "c", "items": PICKED}}, {"x/y": ("1", 0o400)}),
        ({"secret": {"secretName": "s", "defaultMode": 0o440}}, {"k": ("hidden", 0o440)}),
        (
            {"secret": {"secretName": "s", "items": [{"key": "k", "path": "z", "mode": 0o600}]}},
            {"z": ("hidden", 0o600)},
        ),
        (
            {"downwardAPI": {"items": [LABEL, {**AMOUNT, "mode": 0o400}], "defaultMode": 0o604}},
            {"app": ("x", 0o604), "cpu": ("250", 0o400)},
        ),
        (
            {
                "projected": {
                    "defaultMode": 0o640,
                    "sources": [
                        {"configMap": {"name": "c", "items": PICKED}},
                        {"secret": {"name": "s"}},
                        {"downwardAPI": {"items": [LABEL]}},
                    ],
                }
            },
            {"x/y": ("1", 0o400), "k": ("hidden", 0o640), "app": ("x", 0o640)},
        ),
        (
            {"projected": {"sources": [{"secret": {"name": "s", "items": RENAMED}}]}},
            {"q": ("hidden", 0o644)},
        ),
    ],
)  # fmt: skip
def test_volume_has_the_files_and_modes_that_its_fields_name(
    tmp_path: Path, volume: dict[str, Any], expected: dict[str, tuple[str, int]]
) -> None:
    assert files(tmp_path, volume, resources={"limits": {"cpu": "250m"}}) == expected


@pytest.mark.parametrize(
    "source",
    [
        lambda **extra: {"configMap": {"name": "no", **extra}},
        lambda **extra: {"secret": {"secretName": "no", **extra}},
        lambda **extra: {"projected": {"sources": [{"configMap": {"name": "no", **extra}}]}},
        lambda **extra: {"projected": {"sources": [{"secret": {"name": "no", **extra}}]}},
    ],
)
def test_volume_of_a_missing_object_is_empty_if_optional_and_refused_if_not(
    tmp_path: Path, source: Any
) -> None:
    assert files(tmp_path, source(optional=True)) == {}
    with pytest.raises(VolumeProblem):
        files(tmp_path / "other", source())


def test_divisor_and_container_select_the_amount_of_a_variable() -> None:
    other = {**CPU, "resource": "limits.memory", "divisor": "1Mi"}
    found = variables(
        env=[
            {"name": "CPU", "valueFrom": {"resourceFieldRef": CPU}},
            {"name": "MEMORY", "valueFrom": {"resourceFieldRef": other}},
        ],
        resources={"limits": {"cpu": "250m", "memory": "64Mi"}},
    )
    assert (found["CPU"], found["MEMORY"]) == ("250", "64")


def test_amount_is_that_of_the_named_container() -> None:
    named = {"containerName": "other", "resource": "limits.cpu", "divisor": "1m"}
    document = a_pod("true", env=[{"name": "X", "valueFrom": {"resourceFieldRef": named}}])
    resources = {"limits": {"cpu": "70m"}}
    document["spec"]["containers"].append({"name": "other", "resources": resources})
    pod = a_view(document)
    found = environment(pod, pod.spec.containers[0], {}, Settings(), NODE, Path("/nonexistent"))
    assert found["X"] == "70"


def test_token_of_a_volume_has_its_audience_and_lifetime() -> None:
    token = {"path": "t", "audience": "vault", "expirationSeconds": 1200}
    volumes = [{"name": "v", "projected": {"sources": [{"serviceAccountToken": token}]}}]
    (key,) = settings_in_volumes(a_view(with_spec(a_pod("true"), volumes=volumes)))
    wanted = msgspec.json.decode(key.name, type=TokenWanted)
    assert (wanted.audience, wanted.seconds) == ("vault", 1200)


def test_host_path_must_have_its_type(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / "folder")
    assert files(tmp_path / "pod", {"hostPath": {"path": path, "type": "Directory"}}) == {}
    with pytest.raises(VolumeProblem, match="is not a file"):
        files(tmp_path / "pod", {"hostPath": {"path": path, "type": "File"}})


SERVED = {
    "name", "configMap", "downwardAPI", "emptyDir", "ephemeral", "hostPath",
    "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
VOLUMES = load_definitions()[0]["io.k8s.api.core.v1.Volume"]["properties"].keys() - SERVED
PROJECTIONS = {"clusterTrustBundle", "podCertificate"}


@pytest.mark.parametrize("kind", sorted(VOLUMES))
def test_volume_of_any_other_kind_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(VolumeProblem, match="volumes"):
        files(tmp_path, {kind: {}})


@pytest.mark.parametrize("kind", sorted(PROJECTIONS))
def test_projection_of_any_other_kind_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(VolumeProblem, match="does not project this kind of source"):
        files(tmp_path, {"projected": {"sources": [{kind: {"path": "f"}}]}})
