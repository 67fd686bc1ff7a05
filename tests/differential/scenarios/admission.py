"""Admission policies: matching, expressions, decisions, mutations, and validation of policies."""

import asyncio
from typing import Any

from tests.differential.registry import scenario
from tests.differential.side import NotReached, Side

_ROOT = "/apis/admissionregistration.k8s.io/v1"
_POLL_SECONDS = 0.2
_POLLS = 150
_NO_CANARY = {"matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]}

Document = dict[str, Any]


def _rule(*resources: str, group: str = "", version: str = "v1", **fields: Any) -> Document:
    return {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources or ("configmaps",)),
        **fields,
    }


def _match(*rules: Document, **fields: Any) -> Document:
    return {"resourceRules": list(rules) or [_rule()], **fields}


def _config_map(name: str, data: Any = None, **metadata: Any) -> Document:
    return {"metadata": {"name": name, **metadata}, "data": data or {}}


def _applied(expression: str) -> Document:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def _patched(expression: str) -> Document:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


class _Policies:
    """Policies of one scenario, limited to its namespace by their bindings."""

    def __init__(self, it: Side) -> None:
        self._it = it
        self._count = 0

    async def validate(self, *validations: Document | str, **spec: Any) -> str:
        written = [{"expression": each} if isinstance(each, str) else each for each in validations]
        fields: Document = {"validations": written} if written else {}
        return await self._add("validating", {"matchConstraints": _match(), **fields, **spec})

    async def mutate(self, *mutations: Document, **spec: Any) -> str:
        base = {"matchConstraints": _match(), "reinvocationPolicy": "Never"}
        return await self._add("mutating", {**base, "mutations": list(mutations), **spec})

    async def bind(self, policy: str, kind: str = "validating", **spec: Any) -> None:
        """Create a binding; `matchResources` without a namespace selector get the scenario's."""
        match = spec.pop("matchResources", {})
        own = {"matchLabels": {"kubernetes.io/metadata.name": self._it.namespace}}
        body: Document = {
            "policyName": policy,
            "matchResources": {"namespaceSelector": own, "objectSelector": _NO_CANARY, **match},
            **spec,
        }
        if kind == "validating":
            body.setdefault("validationActions", ["Deny"])
        self._count += 1
        name = f"{self._it.namespace}-{self._count}"
        await self._it.ask(
            "POST",
            f"{_ROOT}/{kind}admissionpolicybindings",
            {"metadata": {"name": name}, "spec": body},
        )

    async def settle(self, kind: str = "validating") -> None:
        """Wait until all policies of a kind are in force: Kubernetes reads them once a second."""
        name = f"{self._it.namespace}-canary-{kind}"
        expression = "Object{data: {'canary': 'sings'}}"
        spec: Document = {
            "matchConstraints": _match(_rule(resourceNames=["canary"])),
            **(
                {"validations": [{"expression": "false", "message": "canary sings"}]}
                if kind == "validating"
                else {"mutations": [_applied(expression)], "reinvocationPolicy": "Never"}
            ),
        }
        policy = {"metadata": {"name": name}, "spec": spec}
        await self._it.send("POST", f"{_ROOT}/{kind}admissionpolicies", policy)
        own = {"matchLabels": {"kubernetes.io/metadata.name": self._it.namespace}}
        bound: Document = {"policyName": name, "matchResources": {"namespaceSelector": own}}
        if kind == "validating":
            bound["validationActions"] = ["Deny"]
        binding = {"metadata": {"name": name}, "spec": bound}
        await self._it.send("POST", f"{_ROOT}/{kind}admissionpolicybindings", binding)
        for _ in range(_POLLS):
            answer = await self._it.send(
                "POST",
                self._it.path("configmaps"),
                _config_map("canary", labels={"canary": ""}),
                query={"dryRun": "All"},
            )
            if b"canary sings" in answer.body or b'"canary":"sings"' in answer.body:
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise NotReached(f"the policies are not in force: {answer.body!r}")

    async def _add(self, kind: str, spec: Document) -> str:
        self._count += 1
        name = f"{self._it.namespace}-{self._count}"
        own = {"matchLabels": {"kubernetes.io/metadata.name": self._it.namespace}}
        limits = {"namespaceSelector": own, "objectSelector": _NO_CANARY}
        # A policy that cannot be evaluated denies requests whatever its bindings select.
        match = {**limits, **spec["matchConstraints"]}
        body = {"metadata": {"name": name}, "spec": {**spec, "matchConstraints": match}}
        await self._it.ask("POST", f"{_ROOT}/{kind}admissionpolicies", body)
        return name


async def _denied(it: Side, *validations: Document | str, **spec: Any) -> None:
    """Create one policy, and a ConfigMap that it concerns."""
    policies = _Policies(it)
    await policies.bind(await policies.validate(*validations, **spec))
    await policies.settle()
    await it.create("configmaps", _config_map("m", {"a": "1", "b": "2"}, labels={"x": "y"}))


async def _mutated(it: Side, *mutations: Document, **spec: Any) -> None:
    policies = _Policies(it)
    await policies.bind(await policies.mutate(*mutations, **spec), "mutating")
    await policies.settle("mutating")
    await it.create("configmaps", _config_map("m", {"a": "1"}, labels={"x": "y"}), whole=True)


# --- validation -----------------------------------------------------------------------------


@scenario
async def a_failed_expression(it: Side) -> None:
    await _denied(it, "object.data.size() > 3")


@scenario
async def a_message(it: Side) -> None:
    await _denied(it, {"expression": "false", "message": " too few \t"})


@scenario
async def a_message_expression(it: Side) -> None:
    await _denied(
        it,
        {
            "expression": "has(object.data.c)",
            "messageExpression": (
                "'only ' + object.data.map(k, k + '=' + object.data[k]).join(', ')"
            ),
            "message": "not this",
            "reason": "Forbidden",
        },
    )


@scenario
async def a_message_expression_without_value(it: Side) -> None:
    await _denied(
        it, {"expression": "false", "messageExpression": "object.nothing", "message": "instead"}
    )


@scenario
async def a_message_expression_of_two_lines(it: Side) -> None:
    await _denied(it, {"expression": "1 == 2", "messageExpression": "'a\\nb'"})


@scenario
async def a_reason_too_large(it: Side) -> None:
    await _denied(it, {"expression": "false", "reason": "RequestEntityTooLarge"})


@scenario
async def an_expression_with_an_error(it: Side) -> None:
    await _denied(it, "object.nothing.at.all == 1")


@scenario
async def an_error_that_is_ignored(it: Side) -> None:
    await _denied(
        it, "object.nothing.at.all == 1", "object.data.size() == 2", failurePolicy="Ignore"
    )


@scenario
async def several_validations(it: Side) -> None:
    await _denied(it, "true", {"expression": "false", "message": "second"}, "1 == 3")


@scenario
async def warnings_and_audit(it: Side) -> None:
    policies = _Policies(it)
    policy = await policies.validate("1 == 3", {"expression": "false", "message": "second"})
    await policies.bind(policy, validationActions=["Warn", "Audit"])
    await policies.settle()
    await it.create("configmaps", _config_map("m"))


@scenario
async def members_of_values_without_members(it: Side) -> None:
    policies = _Policies(it)
    policy = await policies.validate(
        "has(oldObject.x)",
        "has(object.metadata.name.x)",
        "has(object.metadata.generation.x)",
        "object.metadata.name.x == 1",
        "object.metadata.name['x'] == 1",
        "oldObject['x'] == 1",
        "oldObject[0] == 1",
        "object.metadata.name[dyn(true)] == 1",
        "oldObject.?x.hasValue()",
        "object.metadata.?name.?x.hasValue()",
        "oldObject[?'x'].hasValue()",
        "dyn(object.data.map(k, object.data[k])).x == 1",
        "has(dyn(object.data.map(k, object.data[k])).x)",
        "dyn(object.data.map(k, object.data[k])).?x.hasValue()",
        "has(object.metadata.labels.x.y)",
    )
    await policies.bind(policy, validationActions=["Warn"])
    await policies.settle()
    await it.create("configmaps", _config_map("m", {"a": "b"}, labels={"x": "y"}))


@scenario
async def variables(it: Side) -> None:
    await _denied(
        it,
        {"expression": "variables.many", "messageExpression": "'only ' + string(variables.size)"},
        variables=[
            {"name": "size", "expression": "object.data.size()"},
            {"name": "many", "expression": "variables.size > 5"},
            {"name": "unused", "expression": "object.nothing"},
        ],
    )


@scenario
async def a_variable_with_an_error(it: Side) -> None:
    await _denied(
        it,
        "variables.bad == 1",
        "variables.bad == 1 || true",
        variables=[{"name": "bad", "expression": "object.nothing"}],
    )


@scenario
async def match_conditions(it: Side) -> None:
    policies = _Policies(it)
    conditions = [
        {"name": "named", "expression": "object.metadata.name.startsWith('m')"},
        {"name": "user", "expression": "request.userInfo.groups.size() > 0"},
    ]
    await policies.bind(await policies.validate("false", matchConditions=conditions))
    await policies.settle()
    await it.create("configmaps", _config_map("m"))
    await it.create("configmaps", _config_map("n"))


@scenario
async def match_conditions_with_errors(it: Side) -> None:
    conditions = [
        {"name": "one", "expression": "object.nothing == 1"},
        {"name": "two", "expression": "oldObject.nothing == 1"},
    ]
    await _denied(it, "false", matchConditions=conditions)


@scenario
async def a_condition_with_an_error_beside_a_false_one(it: Side) -> None:
    conditions = [
        {"name": "one", "expression": "object.nothing == 1"},
        {"name": "two", "expression": "false"},
    ]
    await _denied(it, "false", matchConditions=conditions)


_SHOWN = (
    "[request.kind.kind, request.resource.resource, request.operation, request.name, "
    "request.namespace, string(request.dryRun), request.requestKind.version, "
    "string(has(request.subResource)), string(has(request.userInfo.uid)), "
    "namespaceObject.metadata.name, string(has(namespaceObject.metadata.labels)), "
    "namespaceObject.status.phase, string(oldObject == null), "
    "string(request.options.kind)].join(' ')"
)


@scenario
async def values_of_variables(it: Side) -> None:
    policies = _Policies(it)
    validation = {"expression": "object.metadata.name == 'k'", "messageExpression": _SHOWN}
    await policies.bind(
        await policies.validate(
            {"expression": "!has(object.data.refused)", "messageExpression": _SHOWN}, validation
        )
    )
    await policies.settle()
    await it.create("configmaps", _config_map("k", {"a": ""}))
    await it.create("configmaps", _config_map("m", {"a": ""}))
    await it.patch("configmaps", "k", {"data": {"refused": "1"}})


@scenario
async def values_in_match_conditions(it: Side) -> None:
    conditions = [{"name": "a", "expression": "namespaceObject == null"}]
    await _denied(it, "false", matchConditions=conditions)


@scenario
async def a_deletion(it: Side) -> None:
    policies = _Policies(it)
    rule = {**_rule(), "operations": ["DELETE"]}
    shown = "string(object == null) + ' ' + oldObject.metadata.name + ' ' + request.options.kind"
    policy = await policies.validate(
        {"expression": "false", "messageExpression": shown}, matchConstraints=_match(rule)
    )
    await policies.bind(policy)
    await policies.settle()
    await it.create("configmaps", _config_map("m"))
    await it.delete("configmaps", "m")


@scenario
async def the_authorizer(it: Side) -> None:
    await _denied(
        it,
        "authorizer.group('').resource('configmaps').namespace('x').check('delete').allowed()",
        "authorizer.requestResource.check('create').allowed()",
        "authorizer.path('/healthz').check('get').allowed()",
    )


@scenario
async def the_authorizer_with_bad_names(it: Side) -> None:
    await _denied(it, "authorizer.group('').resource(' ').check('get').allowed()")


@scenario
async def too_many_authorization_checks(it: Side) -> None:
    check = "authorizer.requestResource.check('create').allowed()"
    await _denied(it, " && ".join([check] * 3))


@scenario
async def a_budget_for_all_validations(it: Side) -> None:
    check = "authorizer.requestResource.check('create').allowed()"
    await _denied(it, *[f"{check} && {check}"] * 15)


@scenario
async def a_selector_for_objects(it: Side) -> None:
    policies = _Policies(it)
    match = {"objectSelector": {"matchLabels": {"guard": "on"}}}
    await policies.bind(await policies.validate("false"), matchResources=match)
    await policies.settle()
    await it.create("configmaps", _config_map("free"))
    await it.create("configmaps", _config_map("guarded", labels={"guard": "on"}))
    await it.patch("configmaps", "free", {"metadata": {"labels": {"guard": "on"}}})


@scenario
async def excluded_resources(it: Side) -> None:
    policies = _Policies(it)
    excluded = [_rule(resourceNames=["free"])]
    match = _match(excludeResourceRules=excluded)
    await policies.bind(await policies.validate("false", matchConstraints=match))
    await policies.settle()
    await it.create("configmaps", _config_map("free"))
    await it.create("configmaps", _config_map("guarded"))


@scenario
async def rules_of_the_binding(it: Side) -> None:
    policies = _Policies(it)
    match = _match(_rule("configmaps", "secrets"))
    policy = await policies.validate("false", matchConstraints=match)
    await policies.bind(policy, matchResources={"resourceRules": [_rule("secrets")]})
    await policies.settle()
    await it.create("configmaps", _config_map("m"))
    await it.create("secrets", {"metadata": {"name": "s"}})


@scenario
async def a_subresource(it: Side) -> None:
    policies = _Policies(it)
    match = _match(_rule("pods/status"))
    policy = await policies.validate(
        {"expression": "false", "messageExpression": "request.subResource"}, matchConstraints=match
    )
    await policies.bind(policy)
    await policies.settle()
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await it.create("pods", pod)
    await it.patch("pods", "p", {"status": {"phase": "Running"}}, subresource="status")


@scenario
async def two_policies_that_deny(it: Side) -> None:
    policies = _Policies(it)
    await policies.bind(await policies.validate("1 == 2"))
    await policies.settle()
    await it.create("configmaps", _config_map("m"))


@scenario
async def a_policy_without_binding(it: Side) -> None:
    policies = _Policies(it)
    await policies.validate("false")
    await policies.settle()
    await it.create("configmaps", _config_map("m"))


# --- params ---------------------------------------------------------------------------------

_PARAMS = {"apiVersion": "v1", "kind": "ConfigMap"}


async def _with_params(it: Side, reference: Document, *, expression: str, **spec: Any) -> None:
    policies = _Policies(it)
    for name, labels in (("low", {"level": "1"}), ("high", {"level": "9"})):
        await it.create("configmaps", _config_map(name, {"limit": labels["level"]}, labels=labels))
    match = _match(_rule("secrets"))
    validation = {
        "expression": expression,
        "messageExpression": "'limit ' + (params == null ? 'none' : params.data.limit)",
    }
    policy = await policies.validate(validation, paramKind=_PARAMS, matchConstraints=match, **spec)
    fields: Document = {"paramRef": reference} if reference else {}
    await policies.bind(policy, **fields)
    await policies.settle()
    await it.create("secrets", {"metadata": {"name": "s"}})


@scenario
async def params_by_name(it: Side) -> None:
    reference = {"name": "low", "parameterNotFoundAction": "Deny"}
    await _with_params(it, reference, expression="int(params.data.limit) > 5")


@scenario
async def params_by_selector(it: Side) -> None:
    reference = {
        "selector": {"matchLabels": {"level": "9"}},
        "parameterNotFoundAction": "Deny",
    }
    await _with_params(it, reference, expression="int(params.data.limit) < 5")


@scenario
async def params_in_another_namespace(it: Side) -> None:
    reference = {"name": "low", "namespace": "default", "parameterNotFoundAction": "Deny"}
    await _with_params(it, reference, expression="false")


@scenario
async def params_that_do_not_exist(it: Side) -> None:
    reference = {"name": "none", "parameterNotFoundAction": "Deny"}
    await _with_params(it, reference, expression="true")


@scenario
async def params_that_may_be_absent(it: Side) -> None:
    reference = {"name": "none", "parameterNotFoundAction": "Allow"}
    await _with_params(it, reference, expression="false")


@scenario
async def absent_params_of_an_ignorant_policy(it: Side) -> None:
    reference = {"name": "none", "parameterNotFoundAction": "Deny"}
    await _with_params(it, reference, expression="false", failurePolicy="Ignore")


@scenario
async def no_param_reference(it: Side) -> None:
    await _with_params(it, {}, expression="params != null")


@scenario
async def an_unknown_kind_of_params(it: Side) -> None:
    policies = _Policies(it)
    kind = {"apiVersion": "rules.example.com/v1", "kind": "Limit"}
    policy = await policies.validate("true", paramKind=kind)
    reference = {"name": "none", "parameterNotFoundAction": "Allow"}
    await policies.bind(policy, paramRef=reference)
    await policies.settle()
    await it.create("configmaps", _config_map("m"))


# --- mutation -------------------------------------------------------------------------------


@scenario
async def an_apply_configuration(it: Side) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'n': object.metadata.name}}}"
    await _mutated(it, _applied(expression))


@scenario
async def an_apply_configuration_that_changes_data(it: Side) -> None:
    await _mutated(it, _applied("Object{data: {'b': string(object.data.size())}}"))


@scenario
async def a_json_patch(it: Side) -> None:
    await _mutated(
        it,
        _patched(
            "[JSONPatch{op: 'add', path: '/data/b', value: request.operation}, "
            "JSONPatch{op: 'test', path: '/data/a', value: '1'}, "
            "JSONPatch{op: 'copy', from: '/data/a', path: '/data/c'}, "
            "JSONPatch{op: 'replace', path: '/metadata/labels/x', value: 'z'}, "
            "JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('k.io/a'), "
            "value: 'b'}]"
        ),
    )


@scenario
async def a_json_patch_whose_test_fails(it: Side) -> None:
    await _mutated(
        it,
        _patched(
            "[JSONPatch{op: 'test', path: '/data/a', value: '2'}, "
            "JSONPatch{op: 'remove', path: '/data'}]"
        ),
        _applied("Object{data: {'b': '2'}}"),
    )


@scenario
async def mutations_one_after_the_other(it: Side) -> None:
    await _mutated(
        it,
        _applied("Object{data: {'b': '2'}}"),
        _applied("Object{data: {'size': string(object.data.size())}}"),
        variables=[{"name": "name", "expression": "object.metadata.name"}],
    )


@scenario
async def a_mutation_with_an_error(it: Side) -> None:
    await _mutated(it, _applied("Object{data: {'b': object.nothing}}"))


@scenario
async def a_mutation_with_an_error_that_is_ignored(it: Side) -> None:
    await _mutated(
        it,
        _applied("Object{data: {'b': object.nothing}}"),
        _applied("Object{data: {'c': '3'}}"),
        failurePolicy="Ignore",
    )


@scenario
async def a_mutation_with_the_wrong_type_name(it: Side) -> None:
    await _mutated(it, _applied("Object{metadata: Object.spec{labels: {'a': 'b'}}}"))


@scenario
async def a_mutation_of_an_unknown_field(it: Side) -> None:
    await _mutated(it, _applied("Object{wrong: 'a'}"))


async def _mutated_pod(it: Side, *mutations: Document, **spec: Any) -> None:
    policies = _Policies(it)
    match = _match(_rule("pods"))
    policy = await policies.mutate(*mutations, matchConstraints=match, **spec)
    await policies.bind(policy, "mutating")
    await policies.settle("mutating")
    container = {"name": "c", "image": "i", "args": ["x"], "env": [{"name": "A", "value": "1"}]}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    document = await it.create("pods", pod)
    spec = document.get("spec") or {}
    shown = {
        name: spec.get(name)
        for name in ("containers", "initContainers", "priorityClassName", "nodeSelector")
    }
    it.show("spec", shown)


@scenario
async def a_mutation_of_lists_with_keys(it: Side) -> None:
    await _mutated_pod(
        it,
        _applied(
            "Object{spec: Object.spec{"
            "containers: [Object.spec.containers{name: 'c', env: "
            "[Object.spec.containers.env{name: 'B', value: '2'}]}], "
            "initContainers: [Object.spec.initContainers{name: 'i', image: 'i'}]}}"
        ),
    )


@scenario
async def a_mutation_of_an_atomic_list(it: Side) -> None:
    await _mutated_pod(
        it,
        _applied(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', "
            "args: ['y']}]}}"
        ),
    )


@scenario
async def a_json_patch_with_an_object(it: Side) -> None:
    await _mutated_pod(
        it,
        _patched(
            "[JSONPatch{op: 'add', path: '/spec/initContainers', value: "
            "[Object.spec.initContainers{name: 'i', image: 'j'}]}, "
            "JSONPatch{op: 'add', path: '/spec/containers/0/env/-', value: "
            "Object.spec.containers.env{name: 'B', value: '2'}}]"
        ),
    )


@scenario
async def a_json_patch_of_an_unknown_field(it: Side) -> None:
    await _mutated_pod(it, _patched("[JSONPatch{op: 'add', path: '/spec/wrong', value: 1}]"))


@scenario
async def reinvocation(it: Side) -> None:
    policies = _Policies(it)
    count = _applied("Object{data: {'seen': string(object.data.size())}}")
    first = await policies.mutate(count, reinvocationPolicy="IfNeeded")
    await policies.bind(first, "mutating")
    second = await policies.mutate(_applied("Object{data: {'b': '2'}}"))
    await policies.bind(second, "mutating")
    await policies.settle("mutating")
    await it.create("configmaps", _config_map("m", {"a": "1"}), whole=True)


@scenario
async def mutations_with_params(it: Side) -> None:
    policies = _Policies(it)
    await it.create("configmaps", _config_map("values", {"team": "blue"}))
    mutation = _applied("Object{metadata: Object.metadata{labels: {'team': params.data.team}}}")
    policy = await policies.mutate(
        mutation, paramKind=_PARAMS, matchConstraints=_match(_rule("secrets"))
    )
    reference = {"name": "values", "parameterNotFoundAction": "Deny"}
    await policies.bind(policy, "mutating", paramRef=reference)
    await policies.settle("mutating")
    await it.create("secrets", {"metadata": {"name": "s"}}, whole=True)


@scenario
async def absent_params_of_a_mutation(it: Side) -> None:
    policies = _Policies(it)
    policy = await policies.mutate(_applied("Object{}"), paramKind=_PARAMS)
    reference = {"name": "values", "parameterNotFoundAction": "Deny"}
    await policies.bind(policy, "mutating", paramRef=reference)
    await policies.settle("mutating")
    await it.create("configmaps", _config_map("m"))


# --- policies themselves --------------------------------------------------------------------


async def _asked(it: Side, kind: str, *specs: Document, whole: bool = False) -> None:
    for index, spec in enumerate(specs):
        body = {"metadata": {"name": f"{it.namespace}-{index}"}, "spec": spec}
        await it.ask("POST", f"{_ROOT}/{kind}", body, whole=whole)


def _policy(*validations: Document | str, **spec: Any) -> Document:
    written = [{"expression": each} if isinstance(each, str) else each for each in validations]
    return {"matchConstraints": _match(), "validations": written, **spec}


@scenario
async def faulty_policies(it: Side) -> None:
    await _asked(
        it,
        "validatingadmissionpolicies",
        {},
        {"matchConstraints": {}, "validations": []},
        _policy("object."),
        _policy("1"),
        _policy("object.data.flag"),
        _policy("unknown == 1"),
        _policy("request.uid == ''"),
        _policy("variables.x == 1"),
        _policy("params.x == 1"),
        _policy("Object{} == null"),
        _policy(" "),
        _policy({"expression": "true", "message": " "}),
        _policy({"expression": "true", "message": "a\nb"}),
        _policy({"expression": "true", "messageExpression": " "}),
        _policy({"expression": "true", "messageExpression": "1 + 1"}),
        _policy(
            {
                "expression": "true",
                "messageExpression": "authorizer.path('/').check('get').reason()",
            }
        ),
        _policy({"expression": "true", "reason": "Gone"}),
        _policy("true", failurePolicy="Maybe", paramKind={"apiVersion": "a/b/c"}),
        _policy("true", paramKind={"apiVersion": "A_/v1", "kind": "x_"}),
        _policy("true", paramKind={"apiVersion": "x/", "kind": "Y"}),
    )


@scenario
async def faulty_variables_and_conditions(it: Side) -> None:
    await _asked(
        it,
        "validatingadmissionpolicies",
        _policy("true", variables=[{"name": "", "expression": ""}]),
        _policy("true", variables=[{"name": "1a", "expression": "1"}]),
        _policy("true", variables=[{"name": "namespace", "expression": "1"}]),
        _policy(
            "variables.a == variables.b", variables=[{"name": "a", "expression": "variables.b"}]
        ),
        _policy("variables.a == 1", variables=[{"name": "a", "expression": "'text'"}]),
        _policy("variables.a.b", variables=[{"name": "a", "expression": "request.userInfo"}]),
        _policy("true", matchConditions=[{"name": "", "expression": ""}]),
        _policy("true", matchConditions=[{"name": "a b", "expression": "1"}]),
        _policy("true", matchConditions=[{"name": "a", "expression": "variables.x"}]),
        _policy(
            "true",
            matchConditions=[
                {"name": "a", "expression": "true"},
                {"name": "a", "expression": "params == null"},
            ],
        ),
    )


@scenario
async def faulty_annotations(it: Side) -> None:
    def annotated(*annotations: Document) -> Document:
        return {"matchConstraints": _match(), "auditAnnotations": list(annotations)}

    await _asked(
        it,
        "validatingadmissionpolicies",
        annotated({"key": "", "valueExpression": ""}),
        annotated({"key": "a b", "valueExpression": "1"}),
        annotated({"key": "a", "valueExpression": "'x'"}, {"key": "a", "valueExpression": "null"}),
        annotated({"key": "a", "valueExpression": "object.x ? 'a' : null"}),
        annotated({"key": "a", "valueExpression": "'" + "x" * 5200 + "'"}),
        annotated(*({"key": f"k{index}", "valueExpression": "'x'"} for index in range(21))),
    )


@scenario
async def faulty_rules(it: Side) -> None:
    def matching(rule: Document, **fields: Any) -> Document:
        return _policy("true", matchConstraints=_match({**_rule(), **rule}, **fields))

    await _asked(
        it,
        "validatingadmissionpolicies",
        matching({"operations": []}),
        matching(
            {"operations": ["*", "CREATE"], "apiGroups": ["*", "a"], "apiVersions": ["*", ""]}
        ),
        matching({"operations": ["READ"], "apiGroups": [], "apiVersions": [], "resources": []}),
        matching({"resources": ["", "*/*", "pods"]}),
        matching({"resources": ["pods/*", "pods/status", "*/scale", "jobs/scale"]}),
        matching({"resources": ["*", "pods"]}),
        matching({"scope": "Galaxy", "resourceNames": ["a/b", "c", "c"]}),
        matching({}, matchPolicy="Maybe"),
        matching({}, namespaceSelector={"matchLabels": {"a b": "c d"}}),
        matching({}, objectSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
        matching({}, excludeResourceRules=[{"operations": ["CREATE"]}]),
    )


@scenario
async def faulty_bindings(it: Side) -> None:
    def bound(**spec: Any) -> Document:
        return {"policyName": "p", "validationActions": ["Deny"], **spec}

    both = {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}
    await _asked(
        it,
        "validatingadmissionpolicybindings",
        {},
        bound(policyName="A_"),
        bound(validationActions=[]),
        bound(validationActions=["Deny", "Warn"]),
        bound(validationActions=["Audit", "Audit", "Shout"]),
        bound(paramRef={}),
        bound(paramRef=both),
        bound(paramRef={"name": "a/b", "parameterNotFoundAction": "Maybe"}),
        bound(matchResources={"matchPolicy": "Maybe"}),
        bound(matchResources={"resourceRules": [{"operations": ["CREATE"]}]}),
    )


@scenario
async def faulty_mutating_policies(it: Side) -> None:
    def mutating(*mutations: Document, **spec: Any) -> Document:
        base = {"matchConstraints": _match(), "reinvocationPolicy": "Never"}
        return {**base, "mutations": list(mutations), **spec}

    good = _applied("Object{}")
    await _asked(
        it,
        "mutatingadmissionpolicies",
        {},
        mutating(),
        mutating({}),
        mutating({"patchType": "Merge"}),
        mutating({"patchType": "JSONPatch"}),
        mutating({**good, **_patched("[]"), "patchType": "JSONPatch"}),
        mutating(_applied(" ")),
        mutating(_applied("1")),
        mutating(_applied("Object.spec{}")),
        mutating(_applied("Other{}")),
        mutating(_applied("Object{spec: Object.spec{a: unknown}}")),
        mutating(_applied("true ? Object{} : null")),
        mutating(_patched("[]")),
        mutating(_patched("JSONPatch{op: 'add'}")),
        mutating(_patched("[JSONPatch{op: 1}]")),
        mutating(_patched("[JSONPatch{wrong: 1}]")),
        mutating(_patched("[JSONPatch{op: 'add', path: jsonpatch.escapeKey(1)}]")),
        mutating(good, reinvocationPolicy="Often"),
        mutating(good, matchConstraints=_match({**_rule(), "operations": ["DELETE"]})),
        mutating(_applied("Object{metadata: Object.metadata{name: variables.x}}")),
        mutating(good, variables=[{"name": "x", "expression": "Object{}"}]),
    )


@scenario
async def defaults_of_policies(it: Side) -> None:
    await _asked(it, "validatingadmissionpolicies", _policy("true"), whole=True)
    match = {"resourceRules": [_rule()]}
    binding = {"policyName": "none", "validationActions": ["Audit"], "matchResources": match}
    await _asked(it, "validatingadmissionpolicybindings", binding, whole=True)
    mutation = {
        "matchConstraints": _match(),
        "mutations": [_applied("Object{}")],
        "reinvocationPolicy": "IfNeeded",
    }
    await _asked(it, "mutatingadmissionpolicies", mutation, whole=True)


@scenario
async def type_checking(it: Side) -> None:
    specs = (
        _policy("true"),
        _policy("object.spec.x == 1"),
        _policy("object.metadata.name == 1", matchConstraints=_match(_rule("pods"))),
        _policy(
            {"expression": "object.spec.replicas > 1", "messageExpression": "object.wrong"},
            "object.spec.template.spec.containers.all(c, c.image + 1 == 'x')",
            matchConstraints=_match(
                _rule("jobs", "deployments", group="batch"),
                _rule("deployments", "replicasets", group="apps"),
            ),
        ),
        _policy(
            "variables.n == params.data.x || params.wrong == 1",
            paramKind=_PARAMS,
            variables=[{"name": "n", "expression": "object.data"}],
        ),
        _policy("object.x == 1", matchConstraints=_match(_rule("*"))),
        _policy("object.x == 1", matchConstraints=_match(_rule("pods/status"))),
        _policy(
            "object.spec.ports.all(p, p.targetPort == 'a' && p.port == 1)"
            " && object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')",
            matchConstraints=_match(_rule("services")),
        ),
    )
    await _asked(it, "validatingadmissionpolicies", *specs)
    for index in range(len(specs)):
        path = f"{_ROOT}/validatingadmissionpolicies/{it.namespace}-{index}"
        for _ in range(_POLLS):
            found = (await it.send("GET", path)).json()
            status = found.get("status")
            if isinstance(status, dict) and status.get("observedGeneration"):
                break
            await asyncio.sleep(_POLL_SECONDS)
        # A refusal is shown, too: its status is a text.
        it.show(f"status {index}", found.get("status"))
