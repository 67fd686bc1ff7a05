"""Label and field selectors: parse once, match many.

Example:

    matcher = parse_label_selector("app=web,tier in (a, b),!legacy")
    matcher.matches({"app": "web", "tier": "a"})
"""

import re
from collections.abc import Callable, Iterable, Mapping
from operator import gt, lt
from typing import Final, TypeAlias

from msgspec import Struct

from onejob.objects.meta import LabelSelector

#: Maximum number of terms, plus values in parentheses, of one selector. Parsing that many takes ten
#: milliseconds, and a watch holds them for as long as it is open.
MAX_TERMS: Final = 1000
#: Maximum number of tokens of a term and its comma; parentheses have two of their own.
_TOKENS_PER_TERM: Final = 4


class SelectorError(ValueError):
    """Invalid selector; the message is sent to the client."""


class LabelTerm(Struct, frozen=True):
    key: str
    #: =, ==, !=, in, notin, exists, !, gt or lt
    operator: str
    values: frozenset[str] = frozenset()


class LabelMatcher:
    """Conjunction of terms; without any, everything matches.

    Terms are merged by key at construction: the cost of `matches` depends on the labels of the
    object, not on the size of the selector, which a watch evaluates for every change.
    """

    __slots__ = ("_above", "_allowed", "_below", "_denied", "_forbidden", "_required")

    def __init__(self, terms: Iterable[LabelTerm] = ()) -> None:
        required: set[str] = set()
        #: Keys that must be absent.
        self._forbidden: set[str] = set()
        #: By key: allowed values, denied values, and exclusive bounds.
        self._allowed: dict[str, frozenset[str]] = {}
        self._denied: dict[str, set[str]] = {}
        self._above: dict[str, int] = {}
        self._below: dict[str, int] = {}
        for term in terms:
            key, values = term.key, term.values
            match term.operator:
                case "exists":
                    required.add(key)
                case "!":
                    self._forbidden.add(key)
                case "=" | "==" | "in":
                    required.add(key)
                    self._allowed[key] = self._allowed.get(key, values) & values
                case "!=" | "notin":
                    self._denied.setdefault(key, set()).update(values)
                case "gt":
                    required.add(key)
                    bound = int(*values)
                    self._above[key] = max(self._above.get(key, bound), bound)
                case "lt":
                    required.add(key)
                    bound = int(*values)
                    self._below[key] = min(self._below.get(key, bound), bound)
                case _:
                    raise AssertionError(f"no such operator: {term.operator}")
        self._required = frozenset(required)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet all requirements."""
        keys = labels.keys()
        # All required keys are present from here on.
        if not keys >= self._required:
            return False
        if self._forbidden and not self._forbidden.isdisjoint(keys):
            return False
        # Plain loop, because a watch evaluates it for every change.
        for key, allowed in self._allowed.items():
            if labels[key] not in allowed:
                return False
        denied = self._denied
        if denied and any(labels[key] in denied[key] for key in keys & denied.keys()):
            return False
        if not self._above and not self._below:
            return True
        return all(_compare(labels[key], bound, gt) for key, bound in self._above.items()) and all(
            _compare(labels[key], bound, lt) for key, bound in self._below.items()
        )


class FieldTerm(Struct, frozen=True):
    field: str
    value: str
    negated: bool = False


class FieldSelector:
    """Conjunction of terms, merged by field for the same reason as in `LabelMatcher`."""

    __slots__ = ("_allowed", "_denied", "terms")

    def __init__(self, terms: tuple[FieldTerm, ...] = ()) -> None:
        self.terms = terms
        self._allowed: dict[str, set[str]] = {}
        self._denied: dict[str, set[str]] = {}
        for term in terms:
            merged = self._denied if term.negated else self._allowed
            merged.setdefault(term.field, set()).add(term.value)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether all terms hold. A field that is not set equals the empty string."""
        return all(
            # A field has one value, so two required values never match.
            {fields.get(field, "")} == values
            for field, values in self._allowed.items()
        ) and not any(fields.get(field, "") in values for field, values in self._denied.items())


#: Operators of LabelSelector documents -> ours.
_DOCUMENT_OPERATORS: Final[Mapping[str, str]] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
}


def matcher_of(selector: LabelSelector) -> LabelMatcher:
    """Return the matcher of a `spec.selector`. An empty selector matches everything.

    Raises:
        SelectorError: for an unknown operator.
    """
    terms = [LabelTerm(key, "=", frozenset({v})) for key, v in selector.match_labels.items()]
    for expression in selector.match_expressions:
        operator = _DOCUMENT_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f'"{expression.operator}" is not a valid label selector operator')
        terms.append(LabelTerm(expression.key, operator, frozenset(expression.values)))
    return LabelMatcher(terms)


def parse_label_selector(text: str) -> LabelMatcher:
    """Parse a label selector of a query. Raises `SelectorError`."""
    _require_few_terms(text)
    return LabelMatcher(_LabelParser(text).terms())


def parse_field_selector(text: str) -> FieldSelector:
    """Parse a field selector of a query. Raises `SelectorError`."""
    _require_few_terms(text)
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


def _require_few_terms(text: str) -> None:
    if text.count(",") >= MAX_TERMS:
        raise SelectorError(
            f"a selector has at most {MAX_TERMS} terms and values: use several requests"
        )


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
    """Parser of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def terms(self) -> list[LabelTerm]:
        """Return the terms up to the end of the text. Raises SelectorError."""
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
        """Return the next term. Raises SelectorError."""
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
        """Return the next token as a label key. Raises SelectorError."""
        kind, text = self._next()
        if kind != "word":
            raise _unexpected(text, "identifier")
        prefix, slash, name = text.rpartition("/")
        if not _KEY.fullmatch(text) or len(name) > 63 or (slash and len(prefix) > 253):
            raise SelectorError(f'key: Invalid value: "{text}": not a valid label key')
        return text

    def _exact_value(self) -> str:
        """Return the value after `=`; "" if there is none. Raises SelectorError."""
        if self._peek()[0] in (",", "end"):
            return ""
        kind, text = self._next()
        if kind != "word":
            raise _unexpected(text, "identifier")
        return _checked_value(text)

    def _values(self) -> frozenset[str]:
        """Return the values in parentheses. Raises SelectorError."""
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
                # `(a,)` and `()` contain the empty value, as in upstream's parser.
                values.add("")
            if kind == ")":
                return frozenset(values)
            if kind != ",":
                raise _unexpected(text, "',', or ')'")

    def _peek(self) -> _Token:
        """Return the next token without consuming it."""
        return self._tokens[self._at]

    def _next(self) -> _Token:
        """Consume and return the next token; the end can be read repeatedly."""
        token = self._tokens[self._at]
        if token[0] != "end":
            self._at += 1
        return token


def _tokens(text: str) -> list[_Token]:
    """Return the tokens of a selector, with an end token."""
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
        if len(tokens) > MAX_TERMS * _TOKENS_PER_TERM:
            # Invalid in any case: so many words without commas are no selector.
            break
        at = word.end()
    tokens.append(("end", ""))
    return tokens


def _unexpected(found: str, expected: str) -> SelectorError:
    """Return the error of an unexpected token."""
    return SelectorError(f"unable to parse requirement: found '{found}', expected: {expected}")


def _checked_value(text: str) -> str:
    if not _VALUE.fullmatch(text) or len(text) > 63:
        raise SelectorError(f'values: Invalid value: "{text}": not a valid label value')
    return text


def _compare(value: str, bound: int, holds: Callable[[int, int], bool]) -> bool:
    """Compare a label's value with a bound. A value that is not an integer never matches."""
    return _INTEGER.fullmatch(value) is not None and holds(int(value), bound)


# --- field selectors --------------------------------------------------------------------------

_FIELD_OPERATOR: Final = re.compile("!=|==?")


def _split_unescaped(text: str) -> list[str]:
    """Split at commas not escaped by a backslash; empty pieces are dropped."""
    return re.findall(r"(?:\\.|[^,\\])+|\\$", text, re.DOTALL)


def _unescape(value: str, whole: str) -> str:
    """Return a field value without its escapes. Raises SelectorError."""
    if "\\" not in value:
        if "=" in value:
            raise SelectorError(f"invalid selector: '{whole}'; can't understand '{value}'")
        return value
    if not re.fullmatch(r"(?:\\[\\,=]|[^\\,=])*", value):
        raise SelectorError(f"invalid field selector: invalid escape sequence in {value}")
    return re.sub(r"\\([\\,=])", r"\1", value)
