"""securityContext: resulting privileges, refusals and settings that are not enforced."""

from typing import Any

import msgspec
import pytest

from onejob.objects.pod_spec import NodePod, read_node_pod
from onejob.planning.pod.account_volume import ACCOUNT_FOLDER
from onejob.planning.pod.security import (
    Means,
    Privileges,
    Refused,
    not_enforced,
    privileges_of,
    root_refusal,
)

CHOWN, NET_ADMIN, NET_RAW, SYS_ADMIN, MKNOD = (1 << bit for bit in (0, 12, 13, 21, 27))


def a_pod(context: dict[str, Any] | None = None, **spec: Any) -> NodePod:
    container = {"name": "c", "securityContext": context or {}}
    document = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [container], **spec},
    }
    return read_node_pod(msgspec.json.encode(document))


def rights(context: dict[str, Any], *, read_only: bool = False) -> Privileges | Refused:
    pod = a_pod(context)
    return privileges_of(pod, pod.spec.containers[0], host_read_only=read_only)


def capabilities(context: dict[str, Any], *, read_only: bool = False) -> int:
    found = rights(context, read_only=read_only)
    assert isinstance(found, Privileges)
    assert found.capabilities is not None
    return found.capabilities


@pytest.mark.parametrize(
    ("user", "container", "spec", "kept"),
    [
        (1001, {"volumeMounts": [{"name": "v", "mountPath": "/etc"}]}, {}, True),
        (1001, {"terminationMessagePath": "/etc/ld.so.preload"}, {}, True),
        (1001, {}, {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}, True),
        (1001, {"terminationMessagePath": "/dev/termination-log"}, {}, False),
        (1001, {"volumeMounts": [{"name": "v", "mountPath": ACCOUNT_FOLDER}]}, {}, False),
        (1001, {"volumeMounts": [{"name": "v", "mountPath": f"{ACCOUNT_FOLDER}/.."}]}, {}, True),
        (1001, {}, {}, False),
        (0, {"volumeMounts": [{"name": "v", "mountPath": "/etc"}]}, {}, False),
        (None, {"volumeMounts": [{"name": "v", "mountPath": "/etc"}]}, {}, False),
    ],
)
@pytest.mark.parametrize("of_pod", [False, True])
@pytest.mark.parametrize("privileged", [False, True])
def test_another_user_who_places_files_gains_nothing_by_set_uid_programs(
    user: int | None,
    container: dict[str, Any],
    spec: dict[str, Any],
    kept: bool,
    of_pod: bool,
    privileged: bool,
) -> None:
    named = {} if user is None else {"runAsUser": user}
    own = {"privileged": privileged, **({} if of_pod else named)}
    document = {
        "spec": {
            "securityContext": named if of_pod else {"runAsUser": 0},
            "containers": [{"name": "c", "securityContext": own, **container}],
            **spec,
        }
    }
    pod = read_node_pod(msgspec.json.encode(document))
    found = privileges_of(pod, pod.spec.containers[0], host_read_only=False)
    assert found == Privileges(no_new_privileges=kept)


def test_default_security_context_has_rights_of_server() -> None:
    assert rights({}) == Privileges()
    assert rights({"privileged": True}) == Privileges()


@pytest.mark.parametrize(
    ("asked", "there", "gone"),
    [
        ({}, CHOWN | NET_RAW | MKNOD, SYS_ADMIN | NET_ADMIN),
        ({"add": ["NET_ADMIN"]}, CHOWN | NET_ADMIN, SYS_ADMIN),
        ({"add": ["cap_net_admin"]}, NET_ADMIN, SYS_ADMIN),
        ({"add": ["ALL"], "drop": ["SYS_ADMIN"]}, CHOWN | NET_ADMIN, SYS_ADMIN),
        ({"drop": ["ALL"]}, 0, (1 << 41) - 1),
        ({"drop": ["ALL"], "add": ["CHOWN"]}, CHOWN, ~CHOWN),
        ({"drop": ["NET_RAW"]}, CHOWN, NET_RAW),
    ],
)
def test_capabilities_are_added_to_and_dropped_from_the_usual_ones(
    asked: dict[str, list[str]], there: int, gone: int
) -> None:
    found = capabilities({"capabilities": asked})
    assert found & there == there
    assert not found & gone


def test_a_read_only_host_leaves_no_capability_that_could_change_it() -> None:
    found = capabilities({}, read_only=True)
    assert found & CHOWN
    assert not found & (SYS_ADMIN | MKNOD | NET_ADMIN)
    assert rights({"capabilities": {"add": ["ALL"]}}, read_only=True) != rights({}, read_only=True)
    assert isinstance(rights({"capabilities": {"add": ["ALL"]}}, read_only=True), Refused)
    assert isinstance(rights({"privileged": True}, read_only=True), Refused)


def test_a_read_only_root_takes_away_the_right_to_remount_it() -> None:
    assert not capabilities({"readOnlyRootFilesystem": True}) & SYS_ADMIN


@pytest.mark.parametrize(
    ("context", "shared", "default", "why"),
    [
        ({}, {}, 0, ""),
        ({"runAsNonRoot": True}, {}, 1000, ""),
        ({"runAsNonRoot": True, "runAsUser": 7}, {}, 0, ""),
        ({"runAsNonRoot": False}, {"runAsNonRoot": True}, 0, ""),
        ({"runAsUser": 7}, {"runAsNonRoot": True, "runAsUser": 0}, 0, ""),
        ({"runAsNonRoot": True}, {}, 0, "container has runAsNonRoot and image will run as root "),
        ({}, {"runAsNonRoot": True, "runAsUser": 0}, 7, "container's runAsUser breaks non-root "),
        ({}, {"runAsNonRoot": True}, None, "container has runAsNonRoot and image has non-numeric "),
    ],
)
def test_run_as_non_root_rejects_root(
    context: dict[str, Any], shared: dict[str, Any], default: int | None, why: str
) -> None:
    pod = a_pod(context, securityContext=shared)
    refused = root_refusal(pod, pod.spec.containers[0], default_user=default, user_name="www")
    if not why:
        assert refused is None
        return
    assert refused is not None
    assert refused.message.startswith(why)
    assert refused.message.endswith('(pod: "p_n(u)", container: c)')


def test_unenforceable_fields_are_named() -> None:
    pod = a_pod(
        {
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "RuntimeDefault"},
            "procMount": "Unmasked",
            "runAsUser": 7,
            "capabilities": {"add": ["CHOWN"]},
            "readOnlyRootFilesystem": True,
        },
        securityContext={"fsGroup": 5, "seLinuxOptions": {"type": "t"}},
    )
    own = "containers[0].securityContext."
    always = ["securityContext.seLinuxOptions", own + "appArmorProfile", own + "procMount"]
    assert not_enforced(pod.spec, Means()) == always
    assert set(not_enforced(pod.spec, Means(root=False, mount_namespaces=False))) == {
        *always,
        "securityContext.fsGroup",
        own + "runAsUser",
        own + "capabilities.add",
        own + "readOnlyRootFilesystem",
    }
    assert not_enforced(pod.spec, Means(engine=True)) == []
