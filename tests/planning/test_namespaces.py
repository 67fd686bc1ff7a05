"""Namespaces: their furniture, and letting go of them."""

import msgspec

from onejob.planning.namespaces import finalized, root_ca_map, root_ca_repair, service_account


def test_the_furniture_lives_in_its_namespace() -> None:
    for document in (service_account("team"), root_ca_map("team", "PEM")):
        assert msgspec.json.decode(document)["metadata"]["namespace"] == "team"
    assert msgspec.json.decode(root_ca_map("team", "PEM"))["data"] == {"ca.crt": "PEM"}


def test_only_a_spoilt_certificate_is_repaired() -> None:
    good = root_ca_map("team", "PEM")
    assert root_ca_repair(good, "PEM") is None
    for spoilt in (root_ca_map("team", "OLD"), b"{}"):
        repair = root_ca_repair(spoilt, "PEM")
        assert repair is not None
        assert msgspec.json.decode(repair) == [
            {"op": "add", "path": "/data", "value": {"ca.crt": "PEM"}}
        ]


def test_letting_go_leaves_the_finalizers_of_others() -> None:
    stored = b'{"metadata":{"name":"team"},"spec":{"finalizers":["kubernetes","example.org/x"]}}'
    assert msgspec.json.decode(finalized(stored)) == {
        "metadata": {"name": "team"},
        "spec": {"finalizers": ["example.org/x"]},
    }
    assert msgspec.json.decode(finalized(b"{}")) == {"spec": {"finalizers": []}}
