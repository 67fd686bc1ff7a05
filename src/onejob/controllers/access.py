"""RBAC controllers: bootstrap roles, ClusterRole aggregation and the watched `Policy`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from onejob.client.base import Client, Create, Patch, Replace, Selection
from onejob.controllers.bootstrap import aggregation_objects, create_missing
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import Key
from onejob.planning.rbac import defaults
from onejob.planning.rbac.component_roles import NODE_ROLE
from onejob.planning.rbac.policy import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Binding,
    Policy,
    Role,
    RoleRef,
    aggregated_rules,
    read_binding,
    read_role,
)
from onejob.planning.rbac.rules import AccessAttributes, allows
from onejob.wire.errors import AlreadyExists, ApiError, Conflict, NotFound
from onejob.wire.requests import User

V = TypeVar("V", Role, Binding)

_RETRY_SECONDS = 1.0


async def bootstrap_roles(client: Client) -> None:
    """Create default roles and bindings that are missing or damaged, and complete the others."""
    await create_missing(client, aggregation_objects())
    wanted = [
        *((CLUSTER_ROLES, document) for document in defaults.CLUSTER_ROLES),
        *((CLUSTER_ROLE_BINDINGS, document) for document in defaults.CLUSTER_ROLE_BINDINGS),
    ]
    found: dict[Key, dict[str, Any]] = {}
    for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        for item in (await client.list(Selection(resource))).documents:
            document = msgspec.json.decode(item)
            found[Key(resource, "", document["metadata"]["name"])] = document
    writes: list[Create | Replace] = []
    for resource, document in wanted:
        key = Key(resource, "", document["metadata"]["name"])
        if key not in found:
            encoded = msgspec.json.encode(document)
            writes.append(Create(resource, "", encoded, replaces_damaged=True))
        elif (changed := defaults.reconciled(found[key], document)) is not None:
            writes.append(Replace(key, msgspec.json.encode(changed)))
    for result in await client.write_many(writes):
        # Another client was quicker: it has applied the same defaults, or its version is completed
        # at the next start.
        if isinstance(result, ApiError) and not isinstance(result, (AlreadyExists, Conflict)):
            raise result


def default_policy() -> Policy:
    """Return the policy of the default roles, in force until the stored ones are loaded."""
    policy = Policy()
    for document in defaults.CLUSTER_ROLES:
        policy.put_role(msgspec.convert(document, Role))
    for document in defaults.CLUSTER_ROLE_BINDINGS:
        policy.put_binding(msgspec.convert(document, Binding))
    return policy


class ControllerRights:
    """Permissions of a user by its role bindings."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def allows(self, user: User, question: AccessAttributes) -> bool:
        """Return whether the policy permits the operation in all namespaces."""
        return self.policy.decide(user.name, user.groups, "", question) is not None

    def on_change(self, notify: Callable[[], None]) -> None:
        self.policy.listeners.append(notify)


class NodeRights(ControllerRights):
    """Permissions of the node in this process.

    It has its role by identity: with a binding, any client that claims to be a node would have the
    role too.
    """

    def allows(self, user: User, question: AccessAttributes) -> bool:
        rules = self.policy.rules_of(RoleRef(kind="ClusterRole", name=NODE_ROLE), "")
        return any(allows(rule, question) for rule in rules)


class AccessPolicy:
    """`Policy` kept up to date by `informers`, which the caller runs."""

    def __init__(self, client: Client) -> None:
        self.policy = default_policy()
        self.informers: Mapping[str, Informer[Any]] = {
            ROLES: _new_informer(client, ROLES, read_role),
            CLUSTER_ROLES: _new_informer(client, CLUSTER_ROLES, read_role),
            ROLE_BINDINGS: _new_informer(client, ROLE_BINDINGS, read_binding),
            CLUSTER_ROLE_BINDINGS: _new_informer(client, CLUSTER_ROLE_BINDINGS, read_binding),
        }
        for resource in (ROLES, CLUSTER_ROLES):
            self.informers[resource].on_change(self._roles_changed)
        for resource in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            self.informers[resource].on_change(self._bindings_changed)

    async def synced(self) -> None:
        """Wait until all stored roles and bindings are loaded."""
        for informer in self.informers.values():
            await informer.synced()

    def _roles_changed(self, deltas: Sequence[Delta[Role]]) -> None:
        for delta in deltas:
            if delta.new is None:
                self.policy.remove_role(delta.key.namespace, delta.key.name)
            else:
                self.policy.put_role(delta.new)

    def _bindings_changed(self, deltas: Sequence[Delta[Binding]]) -> None:
        for delta in deltas:
            if delta.new is None:
                self.policy.remove_binding(delta.key.namespace, delta.key.name)
            else:
                self.policy.put_binding(delta.new)


class ClusterRoleAggregation:
    """ClusterRole aggregation controller.

    It writes the rules of selected roles into ClusterRoles with an aggregation rule.
    """

    def __init__(self, client: Client, cluster_roles: Informer[Role]) -> None:
        self._client = client
        self._roles = cluster_roles
        self._changed = asyncio.Event()
        cluster_roles.on_change(lambda _: self._changed.set())

    async def run(self) -> None:
        """Update aggregated roles after each change, until cancelled."""
        await self._roles.synced()
        while True:
            self._changed.clear()
            if await self.settle():
                # Our own writes come back as changes; roles may aggregate aggregated ones.
                await self._changed.wait()
            else:
                await asyncio.sleep(_RETRY_SECONDS)

    async def settle(self) -> bool:
        """Write all rules that differ. Return False if a write failed and must be retried."""
        roles = list(self._roles.cache)
        patches = [
            Patch(
                Key(CLUSTER_ROLES, "", role.metadata.name),
                msgspec.json.encode(
                    {
                        "metadata": {"resourceVersion": role.metadata.resource_version},
                        "rules": rules,
                    }
                ),
                type="merge",
            )
            for role in roles
            if role.aggregation_rule is not None
            and (rules := aggregated_rules(role, roles)) != role.rules
        ]
        results = await self._client.write_many(patches)
        return all(
            # After a conflict or a deletion, the informer is about to report a change.
            not isinstance(result, ApiError) or isinstance(result, (Conflict, NotFound))
            for result in results
        )


def _new_informer(client: Client, resource: str, read: Callable[[bytes], V]) -> Informer[V]:
    return Informer(
        client,
        Selection(resource),
        read,
        lambda view: Key(resource, view.metadata.namespace, view.metadata.name),
    )
