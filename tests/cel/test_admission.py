"""Expressions of admission policies: objects, patches, variables, authorizer, result types."""

from functools import partial

import pytest

from onejob.cel.admission import (
    AUTHORIZER,
    BOOLEAN,
    JSON_PATCHES,
    OBJECT,
    OPTIONAL_TEXT,
    Expressions,
    misplaced_types,
    plain_json,
)
from onejob.cel.errors import CompileError, EvaluationError
from onejob.cel.library.authorizer import AccessCheck, Authorizer
from onejob.cel.program import Budget
from onejob.cel.values import LazyFields

_VALUES = {"object": {"metadata": {"name": "a"}}, "oldObject": None, "request": {}}


def _value(source: str, results: tuple[str, ...] = OBJECT) -> object:
    program = Expressions(composed=False).compile(source, results, patches=True)
    return program.evaluate(_VALUES)


def test_object_literals_become_json() -> None:
    source = (
        "Object{spec: Object.spec{n: 1, list: [Object.spec.list{a: b'x'}], ?none: optional.none(), "
        "?some: optional.of('s'), when: timestamp('2020-01-01T00:00:00Z'), wait: duration('90s')}, "
        "map: {'k': [true, false], 'none': []}}"
    )
    assert plain_json(_value(source)) == {
        "spec": {
            "n": 1, "list": [{"a": "eA=="}], "some": "s",
            "when": "2020-01-01T00:00:00Z", "wait": "90s",
        },
        "map": {"k": [True, False], "none": []},
    }  # fmt: skip


def test_object_types_must_match_the_path_of_their_fields() -> None:
    good = "Object{spec: Object.spec{list: [Object.spec.list{}], map: {'k': 1}}}"
    assert misplaced_types(_value(good)) == []
    assert misplaced_types(_value("Object{spec: Object.wrong{a: Object.spec.a{}}}")) == [
        'unexpected type name "Object.wrong", expected "Object.spec", which matches field name '
        "path from root Object type"
    ]


def test_map_keys_in_objects_must_be_strings() -> None:
    with pytest.raises(EvaluationError, match='map key "1" is not a string'):
        plain_json(_value("Object{a: {1: 2}}"))


def test_escaped_keys_of_json_patches() -> None:
    assert _value("jsonpatch.escapeKey('a/b~c')", ("string",)) == "a~1b~0c"


@pytest.mark.parametrize(
    ("source", "results", "message"),
    [
        ("1", BOOLEAN, "must evaluate to bool but got int"),
        ("object.x", BOOLEAN, "must evaluate to bool but got dyn"),
        ("[1]", OPTIONAL_TEXT, "must evaluate to one of [string null_type] but got list(int)"),
        ("timestamp('x')", BOOLEAN, "compilation failed: ERROR: <input>:1:11: invalid timestamp"),
        ("[]", JSON_PATCHES, "must evaluate to list(JSONPatch) but got list(dyn)"),
        ("Object.spec{}", OBJECT, "must evaluate to Object but got Object.spec"),
        ("Other{}", OBJECT, "undeclared reference to 'Other' (in container '')"),
        ("[JSONPatch{op: 1}]", JSON_PATCHES,
         "expected type of field 'op' is 'string' but provided type is 'int'"),
        ("Object{a: }", OBJECT, "Syntax error"),
        ("Object{a 1}", OBJECT, "Syntax error"),
        ("request.unknown == 1", BOOLEAN, "undefined field 'unknown'"),
        ("params == null", BOOLEAN, "undeclared reference to 'params'"),
    ],
)  # fmt: skip
def test_errors_are_those_of_kubernetes(
    source: str, results: tuple[str, ...], message: str
) -> None:
    with pytest.raises(CompileError) as error:
        Expressions(composed=False).compile(source, results, patches=True)
    assert message in str(error.value)


def test_objects_are_undeclared_outside_of_mutations() -> None:
    for source in ("Object{}", "jsonpatch.escapeKey('a')"):
        with pytest.raises(CompileError, match="undeclared reference"):
            Expressions().compile(source)


def test_variables_have_the_types_of_their_expressions() -> None:
    expressions = Expressions()
    expressions.add_variable("n", "1 + 1")
    expressions.add_variable("user", "request.userInfo")
    with pytest.raises(CompileError):
        expressions.add_variable("bad", "unknown")
    expressions.compile("variables.user.anything == 1 && variables.bad == 2")
    with pytest.raises(CompileError, match="no matching overload for '_==_'"):
        expressions.compile("variables.n == 'a'")
    with pytest.raises(CompileError, match="undefined field 'later'"):
        expressions.compile("variables.later == 1")


def test_lazy_fields_keep_values_and_errors() -> None:
    calls: list[str] = []

    def compute(name: str) -> int:
        calls.append(name)
        if name == "bad":
            raise EvaluationError("no")
        return 1

    fields = LazyFields({name: partial(compute, name) for name in ("good", "bad")})
    expressions = Expressions()
    expressions.add_variable("good", "1")
    expressions.add_variable("bad", "1")
    values = {**_VALUES, "variables": fields}
    source = "variables.good == variables.good && has(variables.bad) && variables.?good.hasValue()"
    assert expressions.compile(source).evaluate(values) is True
    failing = expressions.compile("variables.bad == 1 || variables.bad == 2")
    with pytest.raises(EvaluationError, match="no"):
        failing.evaluate(values)
    assert calls == ["good", "bad"]


def test_authorizer_builds_checks_and_costs() -> None:
    seen: list[AccessCheck] = []

    def decide(check: AccessCheck) -> tuple[bool, str]:
        seen.append(check)
        return check.verb == "get", ""

    source = (
        "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n')"
        ".name('d').fieldSelector('a=b').labelSelector('c=d').check('get').allowed()"
    )
    values = {**_VALUES, AUTHORIZER: Authorizer(decide, AccessCheck())}
    budget = Budget(1_000_000)
    assert Expressions().compile(source).evaluate(values, budget) is True
    assert seen == [
        AccessCheck(
            verb="get", group="apps", resource="deployments", subresource="scale", namespace="n",
            name="d",
        )
    ]  # fmt: skip
    assert 350_000 < 1_000_000 - budget.remaining < 350_020


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        ("authorizer.serviceAccount('a.b', 'c').path('/').check('get').allowed()",
         "Invalid service account namespace"),
        ("authorizer.serviceAccount('a', 'B').path('/').check('get').allowed()",
         "Invalid service account name"),
    ],
)  # fmt: skip
def test_authorizer_refuses_bad_arguments(source: str, message: str) -> None:
    values = {**_VALUES, AUTHORIZER: Authorizer(lambda check: (True, ""), AccessCheck())}
    with pytest.raises(EvaluationError, match=message):
        Expressions().compile(source).evaluate(values)


def test_authorization_decisions_report_no_errors() -> None:
    values = {**_VALUES, AUTHORIZER: Authorizer(lambda check: (True, "why"), AccessCheck())}
    source = (
        "authorizer.path('/').check('get').reason() == 'why' && "
        "!authorizer.path('/').check('get').errored()"
    )
    assert Expressions().compile(source).evaluate(values) is True
