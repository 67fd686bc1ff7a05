"""Arguments of the engine's command line, field by field; no engine is needed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.node.podman.command import (
    NodeSide,
    RunRequest,
    container_name,
    pass_environment,
    run_request,
)
from onejob.node.podman.engine import Abilities
from onejob.node.podman.images import ImageFacts
from onejob.node.runtime import AttemptRef
from onejob.node.setup.environment import ConfigProblem
from onejob.node.setup.volumes import Mount
from onejob.objects.pod_spec import read_node_pod
from tests.node.support import a_pod, with_spec

REF = AttemptRef("u-1", "c", 2)
NODE_SIDE = NodeSide("/data", "boot-1")


def request_for(
    pod: dict[str, Any],
    *,
    env: dict[str, str] | None = None,
    mounts: tuple[Mount, ...] = (),
    image: ImageFacts = ImageFacts(),  # noqa: B008 - frozen
    node_side: NodeSide = NODE_SIDE,
) -> RunRequest:
    view = read_node_pod(msgspec.json.encode(pod))
    (container,) = view.spec.containers
    return run_request(
        view, container, REF, env=env or {}, mounts=mounts, image=image,
        log_file=Path("/data/out"), node_side=node_side,
    )  # fmt: skip


def command_line(pod: dict[str, Any], env: dict[str, str] | None = None) -> tuple[str, ...]:
    """Return the command line from the entrypoint on."""
    arguments = request_for(pod, env=env).arguments
    at = arguments.index("example")
    overrides = [a for a in arguments[:at] if a.startswith("--entrypoint")]
    return (*overrides, *arguments[at:])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("example",)),
        ({"args": ["a", "-b"]}, ("example", "a", "-b")),
        ({"command": ["x"]}, ("--entrypoint=x", "example")),
        ({"command": ["x", "y"], "args": ["z"]}, ("--entrypoint=x", "example", "y", "z")),
        ({"command": ["$(V)"], "args": ["$$(V)"]}, ("--entrypoint=value", "example", "$(V)")),
    ],
)
def test_command_replaces_the_entrypoint_and_args_its_arguments(
    fields: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert command_line(a_pod(**fields), {"V": "value"}) == expected


def test_image_name_is_never_parsed_as_option() -> None:
    arguments = request_for(a_pod(image="--privileged", args=["--volume=/:/host"])).arguments
    assert arguments[-3:] == ("--", "--privileged", "--volume=/:/host")
    assert "--" not in arguments[:-3]


def test_a_mount_has_no_options_of_its_own() -> None:
    for source, target in (("/a:/b", "/c"), ("/a", "/b:rw,exec")):
        with pytest.raises(ConfigProblem, match="contains a colon"):
            request_for(a_pod(), mounts=(Mount(source, target),))


@pytest.mark.parametrize(
    ("own", "shared", "image_user", "expected"),
    [
        ({}, {}, "app", []),
        ({"runAsUser": 0}, {"runAsUser": 7}, "", ["--user=0"]),
        ({}, {"runAsUser": 7, "runAsGroup": 8}, "", ["--user=7:8"]),
        ({"runAsGroup": 8}, {}, "app:staff", ["--user=app:8"]),
        ({"runAsGroup": 8}, {}, "", ["--user=0:8"]),
        ({}, {"fsGroup": 5, "supplementalGroups": [6]}, "", ["--group-add=5", "--group-add=6"]),
    ],
)
def test_users_and_groups(
    own: dict[str, Any], shared: dict[str, Any], image_user: str, expected: list[str]
) -> None:
    pod = with_spec(a_pod(securityContext=own), securityContext=shared)
    arguments = request_for(pod, image=ImageFacts(image_user)).arguments
    assert [a for a in arguments if a.startswith(("--user", "--group"))] == expected


@pytest.mark.parametrize(
    ("limits", "abilities", "expected"),
    [
        ({"memory": "64Mi", "cpu": "1500m"}, Abilities(), ["--memory=67108864b", "--cpus=1.5"]),
        ({"memory": "64Mi", "cpu": 2}, Abilities(memory=False), ["--cpus=2"]),
        ({"memory": "64Mi", "cpu": 2}, Abilities(cpus=False), ["--memory=67108864b"]),
        ({}, Abilities(), []),
    ],
)
def test_limits_are_set_where_the_engine_can_enforce_them(
    limits: dict[str, Any], abilities: Abilities, expected: list[str]
) -> None:
    pod = a_pod(resources={"limits": limits})
    arguments = request_for(pod, node_side=NodeSide("/data", "b", abilities)).arguments
    assert [a for a in arguments if a.startswith(("--memory", "--cpus"))] == expected


def test_a_value_is_not_shown_to_every_user_unless_the_client_would_take_it_for_its_own() -> None:
    env = {"PASSWORD": "secret", "PATH": "/bin", "LD_PRELOAD": "x", "https_proxy": "p", "ODD*": "o"}
    arguments, inherited = pass_environment(env)
    assert inherited == {"PASSWORD": "secret"}
    assert arguments == [
        "--env=PASSWORD", "--env=PATH=/bin", "--env=LD_PRELOAD=x", "--env=https_proxy=p",
        "--env=ODD*=o",
    ]  # fmt: skip


def test_volumes_are_bound_at_their_paths() -> None:
    mounts = (Mount("/a", "/b"), Mount("/c", "/d", read_only=True))
    arguments = request_for(a_pod(), mounts=mounts).arguments
    volumes = [a for a in arguments if a.startswith("--volume")]
    assert volumes == ["--volume=/a:/b", "--volume=/c:/d:ro"]
    with pytest.raises(ConfigProblem, match="colon"):
        request_for(a_pod(), mounts=(Mount("/with:colon", "/b"),))


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), ["--network=host"]), (("--network=none",), ["--network=none"])],
)
def test_the_host_network_is_used_unless_the_user_chose_one_for_all(
    options: tuple[str, ...], expected: list[str]
) -> None:
    pod = with_spec(a_pod(), hostNetwork=True)
    arguments = request_for(pod, node_side=NodeSide("/data", "b", options=options)).arguments
    assert [a for a in arguments if a.startswith("--net")] == expected


def test_container_has_owner_labels_and_attempt_name() -> None:
    arguments = request_for(a_pod(), image=ImageFacts(stop_signal="SIGINT")).arguments
    assert f"--name={container_name(REF)}" in arguments
    labels = dict(
        a.removeprefix("--label=onejob.dev/").split("=", 1)
        for a in arguments
        if a.startswith("--label")
    )
    assert labels == {
        "data-dir": "/data", "pod": "default/p", "pod-uid": "u-1", "container": "c",
        "attempt": "2", "boot": "boot-1", "message-policy": "File", "stop-signal": "SIGINT",
    }  # fmt: skip


def test_a_long_name_makes_a_hostname_that_the_kernel_takes() -> None:
    pod = a_pod(name="n" * 62 + "-" + "x" * 20)
    assert f"--hostname={'n' * 62}" in request_for(pod).arguments


def test_hostname_override_is_used_for_any_length() -> None:
    pod = with_spec(a_pod(name="n"), hostnameOverride="h" * 64, hostname="other")
    assert f"--hostname={'h' * 64}" in request_for(pod).arguments


def test_limits_of_the_pod_limit_a_container_without_its_own() -> None:
    pod = with_spec(a_pod(name="n"), resources={"limits": {"memory": "1Ki"}})
    node_side = NodeSide("/data", "boot-1", Abilities(memory=True, cpus=True))
    assert "--memory=1024b" in request_for(pod, node_side=node_side).arguments


def test_host_ipc_shares_the_hosts() -> None:
    assert "--ipc=host" in request_for(with_spec(a_pod(name="n"), hostIPC=True)).arguments
    assert "--ipc=host" not in request_for(a_pod(name="n")).arguments


def test_engine_gets_security_context_of_container() -> None:
    context = {
        "privileged": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "own.json"},
        "appArmorProfile": {"type": "Unconfined"},
        "seLinuxOptions": {"level": "s0:c1"},
        "procMount": "Unmasked",
    }
    pod = a_pod("true", securityContext=context)
    pod["spec"]["securityContext"] = {"sysctls": [{"name": "net.core.somaxconn", "value": "9"}]}
    pod["spec"]["hostPID"] = True
    arguments = request_for(pod).arguments
    assert {
        "--privileged",
        "--pid=host",
        "--read-only",
        "--read-only-tmpfs=false",
        "--cap-add=NET_ADMIN",
        "--cap-drop=ALL",
        "--sysctl=net.core.somaxconn=9",
        "--security-opt=no-new-privileges",
        "--security-opt=seccomp=/var/lib/kubelet/seccomp/own.json",
        "--security-opt=apparmor=unconfined",
        "--security-opt=label=level:s0:c1",
        "--security-opt=unmask=ALL",
    } <= set(arguments)


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("", "container has runAsNonRoot and image will run as root"),
        ("0:0", "container has runAsNonRoot and image will run as root"),
        ("www", "container has runAsNonRoot and image has non-numeric user (www)"),
        ("1000:1000", ""),
    ],
)
def test_an_image_that_runs_as_root_is_refused_where_that_must_not_be(user: str, why: str) -> None:
    pod = a_pod("true", securityContext={"runAsNonRoot": True})
    image = ImageFacts(user=user)
    if not why:
        assert request_for(pod, image=image).arguments
        return
    with pytest.raises(ConfigProblem) as refused:
        request_for(pod, image=image)
    assert refused.value.message.startswith(why)
    assert refused.value.reason == "CreateContainerConfigError"


def test_engine_gets_security_context_of_pod() -> None:
    context = {
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "own"},
        "seLinuxOptions": {"level": "s0"},
        "sysctls": [{"name": "kernel.msgmax", "value": "9"}],
    }
    arguments = request_for(with_spec(a_pod(name="n"), securityContext=context)).arguments
    options = {"seccomp=unconfined", "apparmor=own", "label=level:s0"}
    expected = {f"--security-opt={option}" for option in options} | {"--sysctl=kernel.msgmax=9"}
    assert expected <= set(arguments)
