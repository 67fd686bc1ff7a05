"""Files of environment variables: values, and the texts that are refused."""

import pytest

from onejob.planning.pod.env_file import InvalidEnvFile, find_variable


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A='1'", "1"),
        ("  A='1'  # note", "1"),
        ("# A='0'\n\nB='2'\nA='1'\nA='3'", "1"),
        ("A='a\nb'\n", "a\nb"),
        ("A='$x \\\"'", '$x \\"'),
        ("A= '1'", ""),
        ("B='A='", ""),
        ("A='1'\r\n", "1"),
        ("A='1'\nnonsense", "1"),
        ("", ""),
    ],
)
def test_the_first_assignment_counts(text: str, value: str) -> None:
    assert find_variable(text, "A") == value


@pytest.mark.parametrize("text", ["A", "='1'", "A ='1'", "A=1", "A='1", "A='1'2", 'A="1"'])
def test_other_syntax_is_refused(text: str) -> None:
    with pytest.raises(InvalidEnvFile):
        find_variable(text, "A")
