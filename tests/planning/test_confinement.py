"""Confinement annotations of a Namespace: users and folders."""

from typing import Any

import pytest

from onejob.planning.pod.confinement import (
    Confinement,
    Ids,
    both,
    host_paths,
    is_within,
    pod_refusal,
    read_confinement,
    set_defaults,
)

_P = "onejob.dev/"
_SOME = Ids(((1000, 1999), (5000, 5000)))


def _read(**annotations: str) -> Confinement:
    named = {_P + name.replace("_", "-"): value for name, value in annotations.items()}
    found, errors = read_confinement(named)
    assert not errors
    return found


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, Confinement()),
        (
            {"run_as_user": "1001"},
            Confinement(1001, 1001, Ids(((1001, 1001),)), Ids(((1001, 1001),))),
        ),
        (
            {"run_as_user": "1001", "allowed_users": "1000-1999, 5000"},
            Confinement(1001, 1001, _SOME, _SOME),
        ),
        (
            {"run_as_user": "1001", "run_as_group": "100"},
            Confinement(1001, 100, Ids(((1001, 1001),)), Ids(((100, 100),))),
        ),
        ({"allowed_host_paths": "/srv/, /home//b"}, Confinement(host_paths=("/srv", "/home/b"))),
        ({"allowed_host_paths": ""}, Confinement(host_paths=())),
    ],
)  # fmt: skip
def test_annotations_are_read(annotations: dict[str, str], expected: Confinement) -> None:
    assert _read(**annotations) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run-as-user", "alice"),
        ("run-as-user", "1-2"),
        ("run-as-user", "-1"),
        ("run-as-user", "4294967295"),
        ("allowed-users", ""),
        ("allowed-users", "5-3"),
        ("allowed-groups", "1,,2"),
        ("allowed-host-paths", "srv"),
        ("allowed-host-paths", "/srv/../etc"),
    ],
)
def test_malformed_confinement_is_reported_and_allows_nothing(name: str, value: str) -> None:
    found, (error,) = read_confinement({_P + name: value})
    assert error.field == f"metadata.annotations[{_P}{name}]"
    context = {"runAsUser": 1, "runAsGroup": 1}
    volume = {"name": "v", "hostPath": {"path": "/srv"}}
    pod = {"containers": [], "securityContext": context, "volumes": [volume]}
    assert pod_refusal(found, pod)


def _pod(shared: Any = None, *own: Any, **spec: Any) -> dict[str, Any]:
    containers = [
        {"name": f"c{n}", "securityContext": context} for n, context in enumerate(own or ({},))
    ]
    return {"securityContext": shared or {}, "containers": containers, **spec}


_ALICE = _read(run_as_user="1001", allowed_host_paths="/home/alice")
_USERS = "the namespace allows 1001 (onejob.dev/allowed-users)"
_GROUPS = "the namespace allows 1001 (onejob.dev/allowed-groups)"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (_pod(), ""),
        (_pod({"runAsUser": 1001, "fsGroup": 1001}), ""),
        (_pod({"runAsUser": 0}), f"pod may not set runAsUser=0: {_USERS}"),
        (_pod({}, {"runAsUser": 0}), f"container c0 may not set runAsUser=0: {_USERS}"),
        (_pod({"runAsGroup": 0}), f"pod may not set runAsGroup=0: {_GROUPS}"),
        (_pod({}, {"runAsGroup": 4}), f"container c0 may not set runAsGroup=4: {_GROUPS}"),
        (_pod({"fsGroup": 0}), f"pod may not set fsGroup=0: {_GROUPS}"),
        (
            _pod({"supplementalGroups": [1001, 4, 27]}),
            f"pod may not set supplementalGroups=4,27: {_GROUPS}",
        ),
        (
            _pod(initContainers=[{"name": "i", "securityContext": {"runAsUser": 7}}]),
            f"container i may not set runAsUser=7: {_USERS}",
        ),
        (_pod(volumes=[{"name": "v", "hostPath": {"path": "/home/alice/x"}}]), ""),
        (
            _pod(volumes=[{"name": "v", "hostPath": {"path": "/home/alicent"}}]),
            "volume v may not use hostPath /home/alicent: allowed are /home/alice",
        ),
        (_pod(volumes=[{"name": "v", "emptyDir": {}}]), ""),
    ],
)
def test_pods_are_confined(spec: dict[str, Any], said: str) -> None:
    set_defaults(_ALICE, spec)
    assert pod_refusal(_ALICE, spec) == said
    assert spec["securityContext"].keys() >= {"runAsUser", "runAsGroup"}


def test_without_a_default_each_container_must_name_its_user() -> None:
    allowed = _read(allowed_users="5-6")
    silent = _pod({}, {"runAsUser": 5}, {})
    assert pod_refusal(allowed, silent).startswith("container c1 must set runAsUser")
    named = _pod({}, {"runAsUser": 5}, {"runAsUser": 6})
    set_defaults(allowed, named)
    assert pod_refusal(allowed, named) == ""


@pytest.mark.parametrize(
    ("spec", "groups", "said"),
    [
        (_pod({"runAsUser": 5}), [5, None], ""),
        (_pod({"runAsUser": 5}, {"runAsUser": 6}), [5, 6], ""),
        (_pod({"runAsUser": 5, "runAsGroup": 100}, {"runAsUser": 6}), [100, None], ""),
        (_pod({}, {"runAsUser": 5, "runAsGroup": 100}), [None, 100], ""),
        (_pod({"runAsUser": 7}), [None, None], "container c0 must set runAsGroup"),
        (_pod({}, {"runAsUser": 7}), [None, None], "container c0 must set runAsGroup"),
        (
            _pod(initContainers=[{"name": "i", "securityContext": {"runAsUser": 7}}]),
            [None, None],
            "container i must set runAsGroup",
        ),
    ],
)
def test_no_image_chooses_a_group(
    spec: dict[str, Any], groups: list[int | None], said: str
) -> None:
    """Unless a group is named, an engine takes further groups of its user from the image."""
    allowed = _read(allowed_users="5-7", allowed_groups="5-6,100")
    set_defaults(allowed, spec)
    owners = [spec, spec["containers"][0]]
    assert [owner["securityContext"].get("runAsGroup") for owner in owners] == groups
    assert said in pod_refusal(allowed, spec)
    assert bool(pod_refusal(allowed, spec)) is bool(said)


def test_non_root_pods_may_use_listed_folders() -> None:
    for named in (_read(run_as_user="1001"), _read(allowed_users="5-6")):
        assert host_paths(named, None) == ()
        assert host_paths(named, ("/srv",)) == ("/srv",)
    assert host_paths(_ALICE, None) == ("/home/alice",)
    assert host_paths(Confinement(), None) is None


def test_unprivileged_server_rejects_other_users() -> None:
    spec = _pod()
    set_defaults(_ALICE, spec)
    assert "does not run as root" in pod_refusal(_ALICE, spec, can_change_user=False)
    only_folders = _read(allowed_host_paths="/srv")
    assert pod_refusal(only_folders, _pod(), can_change_user=False) == ""


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/srv/data", True),
        ("/srv/data/", True),
        ("//srv//data/a", True),
        ("/srv/data/../x", False),
        ("/srv/database", False),
        ("/srv", False),
        ("/", False),
    ],
)
def test_a_path_is_inside_a_folder_or_not(path: str, inside: bool) -> None:
    assert is_within(path, ["/srv/data"]) is inside
    assert is_within(path, ["/"])


def test_a_namespace_can_only_allow_less_than_the_server() -> None:
    assert both(None, ("/srv",)) == ("/srv",)
    assert both(("/etc", "/srv/a"), ("/srv",)) == ("/srv/a",)
    assert both(("/",), ("/srv",)) == ("/srv",)
    assert both(("/etc",), None) == ("/etc",)
    assert both((), None) == ()
