import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.wire.quantity import (
    InvalidQuantity,
    Quantity,
    canonical_quantity,
    parse_quantity,
    same_quantity,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0.5", "500m"),
        ("500m", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("100", "100"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1Ki", "1Ki"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("1e3", "1e3"),
        ("12E2", "1200"),
        ("1E", "1E"),
        ("1.", "1"),
        (".5", "500m"),
        ("+2", "2"),
        ("-1500m", "-1500m"),
        ("-", "0"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("00012", "12"),
        (" 5 ", "5"),
        ("100E", "9223372036854775807"),
        ("1e99999999999999999999", "9223372036854775807"),
        (2, "2"),
        (0.25, "250m"),
    ],
)
def test_quantities_are_written_as_upstream_writes_them(
    text: str | int | float, canonical: str
) -> None:
    assert canonical_quantity(text) == canonical


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "quantities must match the regular expression"),
        ("abc", "quantities must match the regular expression"),
        ("1 Gi", "quantities must match the regular expression"),
        ("1e1.5", "quantities must match the regular expression"),
        ("1..5", "quantities must match the regular expression"),
        ("1Gx", "quantities must match the regular expression"),
        ("k", "unable to parse numeric part of quantity"),
        (".", "unable to parse numeric part of quantity"),
        ("1i", "unable to parse quantity's suffix"),
        ("1KK", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        ("1e+", "unable to parse quantity's suffix"),
        ("1m3", "unable to parse quantity's suffix"),
    ],
)
def test_bad_quantities_are_refused_with_upstreams_text(text: str, problem: str) -> None:
    with pytest.raises(InvalidQuantity, match=problem):
        parse_quantity(text)


def test_values_compare_however_they_are_written() -> None:
    assert same_quantity("0.5", "500m")
    assert same_quantity("1Gi", "1073741824")
    assert not same_quantity("1G", "1Gi")


def test_counts_round_up() -> None:
    assert parse_quantity("100u").milli == 1
    assert parse_quantity("1500m").whole == 2
    assert parse_quantity("1Ki").whole == 1024


@given(
    st.integers(-(2**63) + 1, 2**63 - 1).map(lambda units: units * 10**9)
    | st.integers(-(10**12), 10**12),
    st.sampled_from(["decimal", "binary", "exponent"]),
)
def test_the_canonical_text_reads_back_as_the_same_value(nanos: int, form: str) -> None:
    quantity = Quantity(nanos, form)  # type: ignore[arg-type]
    again = parse_quantity(str(quantity))
    assert again.nanos == quantity.nanos
    assert str(again) == str(quantity)


@given(st.text("0123456789.eEinumkKMGTP+- ", max_size=12))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        canonical = canonical_quantity(text)
    except InvalidQuantity:
        return
    assert canonical_quantity(canonical) == canonical
