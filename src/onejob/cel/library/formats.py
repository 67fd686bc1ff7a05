"""Named formats: `format.dns1123Label().validate(self)`."""

import base64
import binascii
import re
from collections.abc import Callable

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.library.times import parse_date, parse_timestamp
from onejob.cel.library.urls import parse_url
from onejob.cel.values import NONE, Opaque, OptionalValue

LIBRARY = Library()


class Format(Opaque):
    __slots__ = ("faults", "name")
    type_name = "kubernetes.NamedFormat"

    def __init__(self, name: str, faults: Callable[[str], list[str]]) -> None:
        self.name = name
        self.faults = faults

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, Format) and self.name == other.name


def _regex_fault(message: str, pattern: str, examples: tuple[str, ...]) -> str:
    shown = " or ".join(f"'{each}', " for each in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(length: int) -> str:
    return f"must be no more than {length} bytes"


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"

_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character"
)
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)
_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character"
)
_QUALIFIED_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)


def _matcher(
    pattern: str, message: str, longest: int, examples: tuple[str, ...]
) -> Callable[[str], list[str]]:
    compiled = re.compile(rf"(?:{pattern})\Z", re.ASCII)

    def faults(text: str) -> list[str]:
        found = []
        if len(text.encode(errors="surrogatepass")) > longest:
            found.append(_too_long(longest))
        # Bounded: a text far beyond the maximum length is already invalid.
        if not compiled.match(text[:4096]):
            found.append(_regex_fault(message, pattern, examples))
        return found

    return faults


_label = _matcher(_LABEL, _LABEL_MESSAGE, 63, ("my-name", "123-abc"))
_label_1035 = _matcher(_LABEL_1035, _LABEL_1035_MESSAGE, 63, ("my-name", "abc-123"))
_subdomain = _matcher(_SUBDOMAIN, _SUBDOMAIN_MESSAGE, 253, ("example.com",))
_label_value = _matcher(_LABEL_VALUE, _VALUE_MESSAGE, 63, ("MyValue", "my_value", "12345"))
_name_part = _matcher(_QUALIFIED, _QUALIFIED_MESSAGE, 63, ("MyName", "my.name", "123-abc"))


def _prefix(of: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return a check for a name prefix (generateName): a trailing dash is as valid as a letter."""
    return lambda text: of(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if text.count("/") > 1:
        message = f"a qualified name {_QUALIFIED_MESSAGE}"
        shown = _regex_fault(message, _QUALIFIED, ("MyName", "my.name", "123-abc"))
        return [
            f"{shown} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found = []
    if slash:
        if not prefix:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {each}" for each in _subdomain(prefix)]
    if not name:
        found.append("name part must be non-empty")
        return found
    return found + [f"name part {each}" for each in _name_part(name)]


def _uri(text: str) -> list[str]:
    try:
        parse_url(text)
    except EvaluationError as error:
        return [str(error).partition("from string: ")[2]]
    return []


_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z", re.I)


def _uuid(text: str) -> list[str]:
    return [] if _UUID.match(text) else ["does not match the UUID format"]


def _byte(text: str) -> list[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return []


def _date(text: str) -> list[str]:
    try:
        parse_date(text)
    except EvaluationError:
        return ["invalid date"]
    return []


def _datetime(text: str) -> list[str]:
    try:
        parse_timestamp(text)
    except EvaluationError:
        return ["invalid datetime"]
    return []


FORMATS = {
    key: Format(name, faults)
    for key, name, faults in (
        ("dns1123Label", "DNS1123Label", _label),
        ("dns1123Subdomain", "DNS1123Subdomain", _subdomain),
        ("dns1035Label", "DNS1035Label", _label_1035),
        ("qualifiedName", "QualifiedName", _qualified_name),
        ("dns1123LabelPrefix", "DNS1123LabelPrefix", _prefix(_label)),
        ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", _prefix(_subdomain)),
        ("dns1035LabelPrefix", "DNS1035LabelPrefix", _prefix(_label_1035)),
        ("labelValue", "LabelValue", _label_value),
        ("uri", "URI", _uri),
        ("uuid", "uuid", _uuid),
        ("byte", "byte", _byte),
        ("date", "date", _date),
        ("datetime", "datetime", _datetime),
    )
}


def _add_format(key: str, value: Format) -> None:
    @LIBRARY.add(f"format.{key}() -> Format")
    def get() -> Format:
        return value


for _key, _value in FORMATS.items():
    _add_format(_key, _value)


@LIBRARY.add("format.named(string) -> optional<Format>")
def named(name: str) -> OptionalValue:
    return OptionalValue(True, FORMATS[name]) if name in FORMATS else NONE


@LIBRARY.add("Format..validate(string) -> optional<list<string>>", cost=Cost.FORMAT)
def validate(value: Format, text: str) -> OptionalValue:
    faults = value.faults(text)
    return OptionalValue(True, faults) if faults else NONE
