"""Label and field selectors, parsed from text and from documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.objects.meta import LabelSelector, LabelSelectorRequirement
from onejob.wire.selectors import (
    MAX_TERMS,
    LabelMatcher,
    LabelTerm,
    SelectorError,
    matcher_of,
    parse_field_selector,
    parse_label_selector,
)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        (" ", {"a": "1"}, True),
        ("a=1", {"a": "1"}, True),
        ("a=1", {"a": "2"}, False),
        ("a=1", {}, False),
        ("a==1", {"a": "1"}, True),
        ("a=", {"a": ""}, True),
        ("a=,b=1", {"a": "", "b": "1"}, True),
        ("a!=1", {"a": "2"}, True),
        ("a!=1", {"a": "1"}, False),
        ("a!=1", {}, True),
        ("a in (1, 2)", {"a": "2"}, True),
        ("a in (1,2)", {"a": "3"}, False),
        ("a in (1,2)", {}, False),
        ("a in ()", {"a": ""}, True),
        ("a in (,1)", {"a": ""}, True),
        ("a notin (1,2)", {"a": "3"}, True),
        ("a notin (1,2)", {"a": "1"}, False),
        ("a notin (1,2)", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": "1"}, False),
        ("a>5", {"a": "6"}, True),
        ("a > 5", {"a": "5"}, False),
        ("a<5", {"a": "-1"}, True),
        ("a<5", {"a": "5"}, False),
        ("a<5", {"a": "x"}, False),
        ("a<5", {}, False),
        ("a=1,b=2", {"a": "1", "b": "2"}, True),
        ("a=1,b=2", {"a": "1"}, False),
        ("in in (in)", {"in": "in"}, True),
        ("example.com/name=My_value.1", {"example.com/name": "My_value.1"}, True),
        ("a=1 , !b", {"a": "1"}, True),
    ],
)
def test_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_label_selector(text).matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a=1,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: identifier"),
        ("a in", "found '' expected: '('"),
        ("a in (1", "found '', expected: ',', or ')'"),
        ("a 1", "found '1', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=1 b", "found 'b', expected: ',' or 'end of string'"),
        ("!a=1", "found '=', expected: ',' or 'end of string'"),
        ("a==(", "found '(', expected: identifier"),
        ("a>x", "the value must be an integer"),
        ("a/b/c=1", "not a valid label key"),
        ("A_/b=1", "not a valid label key"),
        (f"{'a' * 64}=1", "not a valid label key"),
        ("a=ä", "not a valid label value"),
        (f"a={'1' * 64}", "not a valid label value"),
        ("=1", "found '=', expected: identifier"),
    ],
)
def test_labels_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(SelectorError) as error:
        parse_label_selector(text)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("text", "fields", "matches"),
    [
        ("", {}, True),
        ("metadata.name=x", {"metadata.name": "x"}, True),
        ("metadata.name==x", {"metadata.name": "y"}, False),
        ("a!=x", {"a": "y"}, True),
        ("a!=x", {"a": "x"}, False),
        ("spec.nodeName=", {}, True),
        ("spec.nodeName!=", {}, False),
        ("a=1,b=2", {"a": "1", "b": "2"}, True),
        ("a=1,b!=2", {"a": "1", "b": "2"}, False),
        (r"a=x\,y", {"a": "x,y"}, True),
        (r"a=x\=y", {"a": "x=y"}, True),
        (r"a=x\\y", {"a": "x\\y"}, True),
        ("a=1,", {"a": "1"}, True),
    ],
)
def test_fields(text: str, fields: dict[str, str], matches: bool) -> None:
    assert parse_field_selector(text).matches(fields) is matches


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("junk", "invalid selector: 'junk'; can't understand 'junk'"),
        ("a=1,junk", "invalid selector: 'a=1,junk'; can't understand 'junk'"),
        (r"a=\x", r"invalid field selector: invalid escape sequence in \x"),
        ("a=b=c", "invalid selector: 'a=b=c'; can't understand 'b=c'"),
    ],
)
def test_fields_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(SelectorError) as error:
        parse_field_selector(text)
    assert str(error.value) == why


def test_terms_of_fields_are_known_by_name() -> None:
    (term,) = parse_field_selector("status.phase!=Failed").terms
    assert (term.field, term.value, term.negated) == ("status.phase", "Failed", True)


@pytest.mark.parametrize(
    ("operator", "values", "labels", "matches"),
    [
        ("In", ("1",), {"a": "1"}, True),
        ("In", ("1",), {}, False),
        ("NotIn", ("1",), {}, True),
        ("Exists", (), {"a": ""}, True),
        ("DoesNotExist", (), {"a": ""}, False),
    ],
)
def test_selectors_of_documents(
    operator: str, values: tuple[str, ...], labels: dict[str, str], matches: bool
) -> None:
    requirement = LabelSelectorRequirement(key="a", operator=operator, values=values)
    selector = LabelSelector(match_labels={"x": "y"}, match_expressions=(requirement,))
    assert matcher_of(selector).matches({"x": "y", **labels}) is matches
    assert matcher_of(selector).matches(labels) is False


def test_an_empty_selector_of_a_document_matches_everything() -> None:
    assert matcher_of(LabelSelector()).matches({"a": "1"})


def test_an_unknown_operator_of_a_document_is_refused() -> None:
    requirement = LabelSelectorRequirement(key="a", operator="Near")
    with pytest.raises(SelectorError):
        matcher_of(LabelSelector(match_expressions=(requirement,)))


@given(st.text(alphabet="ab1=!<>(), inot", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        matcher = parse_label_selector(text)
    except SelectorError:
        return
    assert matcher.matches({"a": "1"}) in (True, False)


@given(st.text(alphabet="ab=!,\\", max_size=12))
def test_any_text_is_a_field_selector_or_refused(text: str) -> None:
    try:
        selector = parse_field_selector(text)
    except SelectorError:
        return
    assert selector.matches({"a": "1"}) in (True, False)


def holds(term: LabelTerm, labels: dict[str, str]) -> bool:
    """Evaluate one term by itself, as Kubernetes defines it."""
    value = labels.get(term.key)
    match term.operator:
        case "exists" | "!":
            return (value is not None) is (term.operator == "exists")
        case "in" | "=":
            return value in term.values
        case "notin" | "!=":
            return value not in term.values
        case _:
            pass
    if value is None or not value.isdigit():
        return False
    (bound,) = map(int, term.values)
    return int(value) > bound if term.operator == "gt" else int(value) < bound


KEYS = st.sampled_from("abc")
VALUES = st.sampled_from(["", "x", "1", "2", "3"])
TERMS = st.one_of(
    st.builds(LabelTerm, KEYS, st.sampled_from(["exists", "!"])),
    st.builds(LabelTerm, KEYS, st.sampled_from(["in", "notin"]), st.frozensets(VALUES, min_size=1)),
    st.builds(LabelTerm, KEYS, st.sampled_from(["=", "!="]), VALUES.map(lambda v: frozenset({v}))),
    st.builds(
        LabelTerm, KEYS, st.sampled_from(["gt", "lt"]),
        st.integers(0, 3).map(lambda bound: frozenset({str(bound)})),
    ),
)  # fmt: skip


@given(st.lists(TERMS, max_size=5), st.dictionaries(KEYS, VALUES))
def test_matcher_merges_terms_without_changing_result(
    terms: list[LabelTerm], labels: dict[str, str]
) -> None:
    assert LabelMatcher(terms).matches(labels) is all(holds(term, labels) for term in terms)


@given(
    st.lists(st.tuples(KEYS, st.sampled_from(["=", "!="]), st.sampled_from("xy")), max_size=5),
    st.dictionaries(KEYS, st.sampled_from("xyz")),
)
def test_field_selector_merges_terms_without_changing_result(
    terms: list[tuple[str, str, str]], fields: dict[str, str]
) -> None:
    selector = parse_field_selector(",".join(map("".join, terms)))
    expected = all((fields.get(f, "") == v) is (o == "=") for f, o, v in terms)
    assert selector.matches(fields) is expected


class Counted(dict[str, str]):
    """Labels that count their reads."""

    reads = 0

    def __getitem__(self, key: str) -> str:
        self.reads += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("term", ["a!=v{n}", "a notin (v{n})", "k{n}!=v", "!k{n}"])
def test_matching_takes_no_longer_for_many_terms(term: str) -> None:
    text = ",".join(term.format(n=n) for n in range(MAX_TERMS))
    labels = Counted(a="x", b="y")
    assert parse_label_selector(text).matches(labels)
    assert labels.reads <= 2


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_label_selector, ",".join(["a"] * (MAX_TERMS + 1))),
        (parse_label_selector, f"a in ({','.join(map(str, range(MAX_TERMS + 1)))})"),
        (parse_field_selector, ",".join(["metadata.name!=a"] * (MAX_TERMS + 1))),
    ],
)
def test_selector_of_too_many_terms_is_refused(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(SelectorError, match="at most 1000 terms"):
        parse(text)


def test_words_without_commas_are_read_no_further_than_a_selector_goes() -> None:
    with pytest.raises(SelectorError, match="unable to parse requirement: found 'a'"):
        parse_label_selector("a " * 30_000)
