"""Common types of all objects: keys, metadata, owner references, conditions."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base class of all views: camelCase in JSON, snake_case in Python, defaults for absent fields.

    Guarantees:
        Views are frozen and consist of values, so they form no cycles. The garbage collector need
        not visit the hundreds of thousands of views that caches hold.

    Requirements:
        Documents are normalised on their way into the store (null is dropped), so a view need not
        accept null.
    """


class Key(NamedTuple):
    """Identity of an object. `resource` is the plural with its group: `jobs.batch`, `pods`."""

    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource}/{place}"


#: Construct a Key from its three parts without a Python-level call: each write needs one.
key_at: Callable[[tuple[str, str, str]], Key] = partial(tuple.__new__, Key)

PODS = "pods"
JOBS = "jobs.batch"
CRONJOBS = "cronjobs.batch"
WORKFLOWS = "workflows.onejob.dev"
CRONWORKFLOWS = "cronworkflows.onejob.dev"
NODES = "nodes"
SERVICES = "services"
NAMESPACES = "namespaces"
EVENTS = "events"


class OwnerReference(View, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class Meta(View, frozen=True):
    """The part of metadata that decisions read."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None

    @property
    def controller_ref(self) -> OwnerReference | None:
        """The owner that manages this object (`controller: true`), or None."""
        for reference in self.owner_references:
            if reference.controller:
                return reference
        return None

    @property
    def revision(self) -> int:
        return int(self.resource_version) if self.resource_version else 0


class Condition(View, frozen=True):
    """A condition of a Job or a Pod."""

    type: str = ""
    status: str = ""
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class LabelSelectorRequirement(View, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(View, frozen=True):
    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def condition_is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    # Plain loop, because this runs for every change of a Pod.
    for condition in conditions:  # noqa: SIM110
        if condition.type == kind and condition.status == "True":
            return True
    return False


def find_condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    for condition in conditions:
        if condition.type == kind:
            return condition
    return None
