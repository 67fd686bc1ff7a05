"""Label and field selectors: parse once, match many.

matcher = parse_label_selector("app=web,tier in (a, b),!legacy")
matcher.matches({"app": "web", "tier": "a"})
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from onejob.objects.meta import LabelSelector


class SelectorError(ValueError):
    """The text is no selector; the message says why, as a client shall read it."""


class LabelTerm(Struct, frozen=True):
    key: str
    #: =, ==, !=, in, notin, exists, !, gt or lt
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "=" | "==" | "in":
                return value is not None and value in self.values
            case "!=" | "notin":
                return value is None or value not in self.values
            case "gt":
                return _compare(value, self.values, lambda actual, bound: actual > bound)
            case "lt":
                return _compare(value, self.values, lambda actual, bound: actual < bound)
            case _:
                raise AssertionError(f"no such operator: {self.operator}")


class LabelMatcher(Struct, frozen=True):
    """All terms must hold; without any, everything matches."""

    terms: tuple[LabelTerm, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(term.matches(labels) for term in self.terms)


class FieldTerm(Struct, frozen=True):
    field: str
    value: str
    negated: bool = False


class FieldSelector(Struct, frozen=True):
    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """A field that is not set equals the empty string."""
        return all(
            (fields.get(term.field, "") == term.value) is not term.negated for term in self.terms
        )


#: Operators of LabelSelector documents -> ours.
_DOCUMENT_OPERATORS: Final[Mapping[str, str]] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
}


def matcher_of(selector: LabelSelector) -> LabelMatcher:
    """The matcher of a `spec.selector`. An empty selector matches everything."""
    terms = [LabelTerm(key, "=", frozenset({v})) for key, v in selector.match_labels.items()]
    for expression in selector.match_expressions:
        operator = _DOCUMENT_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f'"{expression.operator}" is not a valid label selector operator')
        terms.append(LabelTerm(expression.key, operator, frozenset(expression.values)))
    return LabelMatcher(tuple(terms))


def parse_label_selector(text: str) -> LabelMatcher:
    return LabelMatcher(tuple(_LabelParser(text).terms()))


def parse_field_selector(text: str) -> FieldSelector:
    terms = []
    for piece in _split_unescaped(text):
        found = _FIELD_OPERATOR.search(piece)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{piece}'")
        terms.append(
            FieldTerm(
                piece[: found.start()],
                _unescape(piece[found.end() :], text),
                negated=found.group() == "!=",
            )
        )
    return FieldSelector(tuple(terms))


# --- label selectors --------------------------------------------------------------------------

#: Kind of token and its text; kinds are the operators themselves, "word" and "end".
_Token: TypeAlias = tuple[str, str]

_SYMBOL: Final = re.compile(r"==|!=|[=<>!(),]")
_WORD: Final = re.compile(r"[^=<>!(),\s]+")
_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    re.ASCII,
)
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def terms(self) -> list[LabelTerm]:
        terms: list[LabelTerm] = []
        if self._peek()[0] == "end":
            return terms
        while True:
            terms.append(self._term())
            kind, text = self._next()
            if kind == "end":
                return terms
            if kind != ",":
                raise SelectorError(f"found '{text}', expected: ',' or 'end of string'")
            if self._peek()[0] not in ("word", "!"):
                text = self._peek()[1]
                raise SelectorError(f"found '{text}', expected: identifier after ','")

    def _term(self) -> LabelTerm:
        if self._peek()[0] == "!":
            self._next()
            key = self._key()
            if self._peek()[0] not in (",", "end"):
                raise _unexpected(self._peek()[1], "',' or 'end of string'")
            return LabelTerm(key, "!")
        key = self._key()
        if self._peek()[0] in (",", "end"):
            return LabelTerm(key, "exists")
        kind, text = self._next()
        if kind in ("=", "==", "!="):
            return LabelTerm(key, kind, frozenset({self._exact_value()}))
        if kind in ("<", ">"):
            bound = self._exact_value()
            if not _INTEGER.fullmatch(bound):
                raise SelectorError(
                    f'values[0]: Invalid value: "{bound}": '
                    "for 'Gt', 'Lt' operators, the value must be an integer"
                )
            return LabelTerm(key, "gt" if kind == ">" else "lt", frozenset({bound}))
        if text in ("in", "notin"):
            return LabelTerm(key, text, self._values())
        raise _unexpected(text, "in, notin, =, ==, !=, gt, lt")

    def _key(self) -> str:
        kind, text = self._next()
        if kind != "word":
            raise _unexpected(text, "identifier")
        prefix, slash, name = text.rpartition("/")
        if not _KEY.fullmatch(text) or len(name) > 63 or (slash and len(prefix) > 253):
            raise SelectorError(f'key: Invalid value: "{text}": not a valid label key')
        return text

    def _exact_value(self) -> str:
        if self._peek()[0] in (",", "end"):
            return ""
        kind, text = self._next()
        if kind != "word":
            raise _unexpected(text, "identifier")
        return _checked_value(text)

    def _values(self) -> frozenset[str]:
        kind, text = self._next()
        if kind != "(":
            # Without the comma, as upstream has it.
            raise SelectorError(f"unable to parse requirement: found '{text}' expected: '('")
        values = set()
        while True:
            kind, text = self._next()
            if kind == "word":
                values.add(_checked_value(text))
                kind, text = self._next()
            else:
                # `(a,)` and `()` hold the empty value, as upstream reads them.
                values.add("")
            if kind == ")":
                return frozenset(values)
            if kind != ",":
                raise _unexpected(text, "',', or ')'")

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        if token[0] != "end":
            self._at += 1
        return token


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        symbol = _SYMBOL.match(text, at)
        if symbol:
            tokens.append((symbol.group(), symbol.group()))
            at = symbol.end()
            continue
        word = _WORD.match(text, at)
        assert word is not None, "neither space nor symbol, so a word"
        tokens.append(("word", word.group()))
        at = word.end()
    tokens.append(("end", ""))
    return tokens


def _unexpected(found: str, expected: str) -> SelectorError:
    return SelectorError(f"unable to parse requirement: found '{found}', expected: {expected}")


def _checked_value(text: str) -> str:
    if not _VALUE.fullmatch(text) or len(text) > 63:
        raise SelectorError(f'values: Invalid value: "{text}": not a valid label value')
    return text


def _compare(value: str | None, bounds: frozenset[str], holds: Callable[[int, int], bool]) -> bool:
    """Values that are no integers never match."""
    if value is None or not _INTEGER.fullmatch(value):
        return False
    (bound,) = bounds
    return holds(int(value), int(bound))


# --- field selectors --------------------------------------------------------------------------

_FIELD_OPERATOR: Final = re.compile("!=|==?")


def _split_unescaped(text: str) -> list[str]:
    """At commas that no backslash protects; nothing between two commas is no piece."""
    return re.findall(r"(?:\\.|[^,\\])+|\\$", text, re.DOTALL)


def _unescape(value: str, whole: str) -> str:
    if "\\" not in value:
        if "=" in value:
            raise SelectorError(f"invalid selector: '{whole}'; can't understand '{value}'")
        return value
    if not re.fullmatch(r"(?:\\[\\,=]|[^\\,=])*", value):
        raise SelectorError(f"invalid field selector: invalid escape sequence in {value}")
    return re.sub(r"\\([\\,=])", r"\1", value)
