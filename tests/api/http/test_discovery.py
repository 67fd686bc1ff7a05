"""Discovery documents: they list the served kinds."""

from onejob.api.http.discovery import (
    aggregated,
    api_group,
    api_group_list,
    api_resource_list,
    api_versions,
)
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry

KINDS = KindRegistry()


def test_the_core_group_has_one_version() -> None:
    assert api_versions(KINDS, "h:1")["versions"] == ["v1"]


def test_groups_have_a_preferred_version() -> None:
    names = [group["name"] for group in api_group_list(KINDS)["groups"]]
    assert {"batch", "apps", "authorization.k8s.io"} <= set(names)
    assert "" not in names
    assert api_group(KINDS, "batch")["preferredVersion"] == {
        "groupVersion": "batch/v1",
        "version": "v1",
    }


def test_resources_are_listed_with_their_subresources() -> None:
    listed = api_resource_list(KINDS, "batch", "v1")
    assert listed["groupVersion"] == "batch/v1"
    by_name = {resource["name"]: resource for resource in listed["resources"]}
    own = {f"jobs/{name}" for name in ("history", "outputs", "pods", "progress")}
    assert set(by_name) == {"cronjobs", "cronjobs/status", "jobs", "jobs/status"} | own
    assert by_name["cronjobs"]["shortNames"] == ["cj"]
    assert by_name["jobs"]["categories"] == ["all"]
    assert by_name["jobs/status"]["verbs"] == ["get", "patch", "update"]


def test_foreign_bodies_of_subresources_are_named() -> None:
    resources = {r["name"]: r for r in api_resource_list(KINDS, "", "v1")["resources"]}
    eviction = resources["pods/eviction"]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == (
        "policy",
        "v1",
        "Eviction",
    )


def test_aggregated_discovery_matches_legacy_discovery() -> None:
    document = aggregated(KINDS, "v2", core=False)
    assert document["apiVersion"] == "apidiscovery.k8s.io/v2"
    batch = next(item for item in document["items"] if item["metadata"]["name"] == "batch")
    jobs = next(r for r in batch["versions"][0]["resources"] if r["resource"] == "jobs")
    assert jobs["responseKind"] == {"group": "", "version": "", "kind": "Job"}
    assert jobs["scope"] == "Namespaced"
    own = {"history", "outputs", "pods", "progress"}
    assert {sub["subresource"] for sub in jobs["subresources"]} == {"status"} | own
    assert len(aggregated(KINDS, "v2", core=True)["items"]) == 1


def test_the_most_stable_version_is_preferred() -> None:
    versions = ["v1alpha1", "v2beta1", "v1", "other", "v10", "v2beta2", "v2"]
    kinds = KindRegistry(
        Kind("example.com", version, f"Widget{version}", f"widgets{version}", "widget")
        for version in versions
    )
    assert [entry["version"] for entry in api_group(kinds, "example.com")["versions"]] == [
        "v10", "v2", "v1", "v2beta2", "v2beta1", "v1alpha1", "other",
    ]  # fmt: skip
