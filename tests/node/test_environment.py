"""Variables whose expansion would be huge: refused rather than computed."""

from collections.abc import Mapping
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
from tests.node.support import a_pod

NODE = NodeContext("node", "127.0.0.1")


class Settings:
    """Source in which every ConfigMap holds half a megabyte."""

    def values(self, key: Key) -> Mapping[str, bytes] | None:
        return {"k": b"v" * 500_000}


def variables(**fields: Any) -> dict[str, str]:
    pod = read_node_pod(msgspec.json.encode(a_pod(**fields)))
    return environment(pod, pod.spec.containers[0], {}, Settings(), NODE)


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
