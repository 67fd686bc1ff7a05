"""Variables whose expansion would be huge: refused rather than computed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.node.runtime import NodeContext
from onejob.node.setup.environment import (
    ConfigProblem,
    environment,
    expand,
    expand_all,
)
from onejob.objects.meta import Key
from onejob.objects.pod_spec import read_node_pod
from tests.node.support import a_pod, with_spec

NODE = NodeContext("node", "127.0.0.1")


class Settings:
    """Source in which every ConfigMap holds half a megabyte."""

    def values(self, key: Key) -> Mapping[str, bytes] | None:
        return {"k": b"v" * 500_000}


def variables(**fields: Any) -> dict[str, str]:
    pod = read_node_pod(msgspec.json.encode(a_pod(**fields)))
    return environment(pod, pod.spec.containers[0], {}, Settings(), NODE, Path("/nonexistent"))


def test_variables_that_double_end_where_a_process_could_not_be_given_them() -> None:
    first = {"name": "E0", "value": "x" * 100}
    doubled = [{"name": f"E{n}", "value": f"$(E{n - 1})$(E{n - 1})"} for n in range(1, 50)]
    assert len(variables(env=[first, *doubled[:9]])["E9"]) == 100 * 2**9
    with pytest.raises(ConfigProblem, match="more than 131072 characters"):
        variables(env=[first, *doubled])


def test_all_variables_together_have_a_length() -> None:
    first = {"name": "BIG", "value": "x" * 100_000}
    many = [{"name": f"E{n}", "value": "$(BIG)"} for n in range(1000)]
    with pytest.raises(
        ConfigProblem, match="environment variables need more than 6291456 characters"
    ):
        variables(env=[first, *many])
    sources = [{"prefix": f"P{n}", "configMapRef": {"name": "m"}} for n in range(1000)]
    with pytest.raises(ConfigProblem, match="variables need more than"):
        variables(envFrom=sources)


def test_a_command_has_a_length() -> None:
    values = {"BIG": "x" * 100_000}
    assert expand_all(["a", "$(BIG)"], values) == ["a", "x" * 100_000]
    with pytest.raises(ConfigProblem, match="the command needs more than"):
        expand_all(["$(BIG)"] * 1000, values)
    with pytest.raises(ConfigProblem):
        expand("$(BIG)$(BIG)", values)
    assert expand("$$(BIG) $(NO) $(X)", {"X": "y"}) == "$(BIG) $(NO) y"


def variables_of_file(tmp_path: Path, **reference: Any) -> dict[str, str]:
    (tmp_path / "volumes" / "v").mkdir(parents=True, exist_ok=True)
    file = tmp_path / "volumes" / "v" / "f"
    if not file.is_symlink():
        file.write_text("# made by an init container\nA='1'\nB='two\nlines' # rest\n")
    source = {"fileKeyRef": {"volumeName": "v", "path": "f", **reference}}
    document = a_pod(env=[{"name": "E", "valueFrom": source}])
    document = with_spec(document, volumes=[{"name": "v", "emptyDir": {}}])
    pod = read_node_pod(msgspec.json.encode(document))
    return environment(pod, pod.spec.containers[0], {}, Settings(), NODE, tmp_path)


def test_a_variable_is_read_from_a_file(tmp_path: Path) -> None:
    assert variables_of_file(tmp_path, key="A")["E"] == "1"
    assert variables_of_file(tmp_path, key="B")["E"] == "two\nlines"


def test_a_variable_that_is_not_in_its_file_is_refused_unless_optional(tmp_path: Path) -> None:
    assert "E" not in variables_of_file(tmp_path, key="C", optional=True)
    with pytest.raises(ConfigProblem, match='key "C" not found in file "f"'):
        variables_of_file(tmp_path, key="C")
    with pytest.raises(ConfigProblem, match="couldn't parse env file"):
        variables_of_file(tmp_path, key="A", path="absent")
    with pytest.raises(ConfigProblem, match="cannot find the volume"):
        variables_of_file(tmp_path, key="A", volumeName="w")


def test_a_file_of_variables_may_not_lead_out_of_its_volume(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("A='1'\n")
    (tmp_path / "volumes" / "v").mkdir(parents=True)
    (tmp_path / "volumes" / "v" / "f").symlink_to(tmp_path / "secret")
    for path in ("f", "../../secret"):
        with pytest.raises(ConfigProblem, match="couldn't parse env file"):
            variables_of_file(tmp_path, key="A", path=path)


def test_hostname_override_is_the_variable_hostname() -> None:
    document = with_spec(a_pod(), hostname="h", hostnameOverride="over.example")
    pod = read_node_pod(msgspec.json.encode(document))
    assert environment(pod, pod.spec.containers[0], {}, Settings(), NODE, Path("/nonexistent"))[
        "HOSTNAME"
    ] == ("over.example")
