"""Injection of service-account tokens into Pods: conditions and mount path."""

from typing import Any

import pytest

from onejob.planning.pod.account_volume import (
    ACCOUNT_FOLDER,
    VOLUME_PREFIX,
    mounts_token,
    with_account_volume,
)


@pytest.mark.parametrize(
    ("account", "pod_says", "account_says", "mounts"),
    [
        ("default", None, None, False),
        ("worker", None, None, True),
        ("worker", False, None, False),
        ("worker", None, False, False),
        ("worker", True, False, True),
        ("default", True, None, True),
        ("default", None, True, True),
        ("default", False, True, False),
    ],
)
def test_the_pod_decides_then_its_account_then_whether_it_has_one_of_its_own(
    account: str, pod_says: bool | None, account_says: bool | None, mounts: bool
) -> None:
    assert mounts_token(account, pod_says, account_says) is mounts


def spec(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c"}], **fields}


def test_every_container_gets_the_volume_read_only() -> None:
    made = with_account_volume(spec(initContainers=[{"name": "i"}]), b"seed")
    (volume,) = made["volumes"]
    assert volume["name"].startswith(VOLUME_PREFIX)
    mount = {"name": volume["name"], "readOnly": True, "mountPath": ACCOUNT_FOLDER}
    assert made["containers"][0]["volumeMounts"] == [mount]
    assert made["initContainers"][0]["volumeMounts"] == [mount]
    sources = volume["projected"]["sources"]
    assert [next(iter(source)) for source in sources] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]


def test_a_container_with_something_at_that_place_keeps_it() -> None:
    own = {"name": "own", "mountPath": ACCOUNT_FOLDER + "/"}
    busy = {"name": "busy", "volumeMounts": [own]}
    assert with_account_volume({"containers": [busy]}, b"seed") == {"containers": [busy]}
    made = with_account_volume({"containers": [busy, {"name": "c"}]}, b"seed")
    assert made["containers"][0] == busy
    assert made["containers"][1]["volumeMounts"][0]["name"] == made["volumes"][0]["name"]


def test_the_name_is_the_same_for_the_same_template_and_never_taken() -> None:
    first = with_account_volume(spec(), b"seed")["volumes"][0]["name"]
    assert with_account_volume(spec(), b"seed")["volumes"][0]["name"] == first
    crowded = spec(volumes=[{"name": first, "emptyDir": {}}])
    names = [volume["name"] for volume in with_account_volume(crowded, b"seed")["volumes"]]
    assert len(set(names)) == 2
