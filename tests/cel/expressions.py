"""Hypothesis strategies for expressions of one type each, over a fixed value."""

from typing import Any

from hypothesis import strategies as st

SELF: dict[str, Any] = {
    "n": 3,
    "zero": 0,
    "d": 2.5,
    "s": "héllo",
    "empty": "",
    "yes": True,
    "none": None,
    "ints": [3, 1, 2],
    "words": ["a", "bb", ""],
    "mixed": [1, "x", 2.5, None],
    "map": {"a": 1, "b": 2},
    "objects": [{"k": "x", "n": 1}, {"k": "y"}, {"n": 3}],
}

#: The types that expressions are made of.
_INTS = st.sampled_from(
    ["0", "1", "-1", "7", "9223372036854775807", "self.n", "self.zero", "self.map.a",
     "size(self.words)", "self.ints[0]", "self.missing", "self.ints[7]", "x"]
)  # fmt: skip
_STRINGS = st.sampled_from(
    ["''", "'a'", "'hé'", "self.s", "self.empty", "self.words[1]", "self.gone", "string(self.n)"]
)
_DOUBLES = st.sampled_from(["0.0", "2.5", "self.d", "double(self.n)", "-1.5e300", "1.0 / 0.0"])
_BOOLS = st.sampled_from(
    ["true", "false", "self.yes", "has(self.n)", "has(self.nope)", "has(self.map.c)",
     "has(self.nope.deeper)", "has(self.s.x)", "has(self.none.x)", "has(self.ints.x)",
     "self.nope", "self.none == null", "type(self.n) == int"]
)  # fmt: skip
_INT_LISTS = st.sampled_from(["self.ints", "[1, 2]", "[]", "self.mixed", "self.map"])


def _binary(left: Any, operators: list[str], right: Any) -> Any:
    return st.tuples(left, st.sampled_from(operators), right).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    )


def _ints(inner: Any) -> Any:
    return (
        _INTS
        | _binary(inner, ["+", "-", "*", "/", "%"], inner)
        | inner.map(lambda text: f"-({text})")
        | inner.map(lambda text: f"self.ints.map(x, {text}).size()")
        | inner.map(lambda text: f"dyn(self.ints)[{text}]")
    )


INTS = st.recursive(_INTS, _ints, max_leaves=4)
STRINGS = st.recursive(
    _STRINGS,
    lambda inner: _binary(inner, ["+"], inner) | inner.map(lambda text: f"self.words[0] + {text}"),
    max_leaves=3,
)
_COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]
_LEAVES = (
    _BOOLS
    | _binary(INTS, _COMPARISONS, INTS)
    | _binary(STRINGS, _COMPARISONS, STRINGS)
    | _binary(_DOUBLES, _COMPARISONS, _DOUBLES)
    | _binary(INTS, ["<", "<=", ">", ">="], _DOUBLES)
    | _binary(INTS.map(lambda text: f"dyn({text})"), ["==", "!="], _DOUBLES)
    | _binary(INTS, ["in"], _INT_LISTS)
    | _binary(STRINGS, ["in"], st.sampled_from(["self.words", "self.map", "['a', 'b']", "{}"]))
    | st.tuples(
        STRINGS, st.sampled_from(["contains", "startsWith", "endsWith", "matches"]), _STRINGS
    ).map(lambda parts: f"({parts[0]}).{parts[1]}({parts[2]})")
)


def _bools(inner: Any) -> Any:
    quantified = st.tuples(
        _INT_LISTS | st.just("self.objects"),
        st.sampled_from(["all", "exists", "exists_one"]),
        inner | st.sampled_from(["x > 1", "x == 'x'", "has(x.k)", "x.n == 1 || has(x.k)"]),
    ).map(lambda parts: f"{parts[0]}.{parts[1]}(x, {parts[2]})")
    filtered = st.tuples(_INT_LISTS, inner).map(
        lambda parts: f"{parts[0]}.filter(x, {parts[1]}).size() > 1"
    )
    return (
        _binary(inner, ["&&", "||"], inner)
        | inner.map(lambda text: f"!({text})")
        | st.tuples(inner, inner, inner).map(lambda parts: "({} ? {} : {})".format(*parts))
        | quantified
        | filtered
    )


BOOLS = st.recursive(_LEAVES, _bools, max_leaves=8)
