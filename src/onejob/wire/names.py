"""Validation of names. Each function returns error messages; an empty result means valid."""

import re
from functools import lru_cache
from typing import Final

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_HEADER_NAME = "[-A-Za-z0-9]+"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"

_is_label: Final = re.compile(_LABEL, re.ASCII).fullmatch
_is_subdomain_text: Final = re.compile("[-a-z0-9.]+", re.ASCII).fullmatch
_is_qualified: Final = re.compile(_QUALIFIED, re.ASCII).fullmatch
_is_label_value: Final = re.compile(_LABEL_VALUE, re.ASCII).fullmatch
_is_config_key: Final = re.compile(_CONFIG_KEY, re.ASCII).fullmatch
_is_header_name: Final = re.compile(_HEADER_NAME, re.ASCII).fullmatch
_is_http_path: Final = re.compile(_HTTP_PATH, re.ASCII).fullmatch
_is_env_name: Final = re.compile("[ -<>-~]*", re.ASCII).fullmatch
_is_port_name: Final = re.compile("[-a-z0-9]+", re.ASCII).fullmatch
_has_letter: Final = re.compile("[a-z]").search

_ENDS: Final = "and must start and end with an alphanumeric character"


def _is_subdomain(text: str) -> bool:
    # Not one pattern with repeated groups, which is slow for thousands of parts.
    return (
        _is_subdomain_text(text) is not None
        and not (".." in text or ".-" in text or "-." in text)
        and text[0] not in "-."
        and text[-1] not in "-."
    )


def subdomain_errors(text: str) -> list[str]:
    """Validate a DNS-1123 subdomain: the name of most objects."""
    errors = []
    if len(text) > 253:
        errors.append("must be no more than 253 characters")
    if not _is_subdomain(text):
        errors.append(_subdomain_text())
    return errors


def label_errors(text: str) -> list[str]:
    """Validate a DNS-1123 label: namespaces, containers, hostnames."""
    errors = []
    if len(text) > 63:
        errors.append("must be no more than 63 characters")
    if not _is_label(text):
        if _is_subdomain(text):
            errors.append("must not contain dots")
        else:
            errors.append(
                _pattern_text(
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric "
                    f"characters or '-', {_ENDS}",
                    _LABEL,
                    "my-name",
                    "123-abc",
                )
            )
    return errors


def qualified_name_errors(text: str) -> tuple[str, ...]:
    """Validate `name` or `prefix/name`: label and annotation keys, condition types, resources.

    Cached, because the same few keys come with every Pod, unless the text is too long to be valid.
    """
    if len(text) > 253 + 1 + 63:
        return _qualified_name_errors.__wrapped__(text)
    return _qualified_name_errors(text)


@lru_cache(maxsize=4096)
def _qualified_name_errors(text: str) -> tuple[str, ...]:
    """Return the errors of `name` or `prefix/name`, from a cache."""
    errors = []
    match text.split("/"):
        case [name]:
            pass
        case [prefix, name]:
            if not prefix:
                errors.append("prefix part must be non-empty")
            else:
                if len(prefix) > 253:
                    errors.append("prefix part must be no more than 253 bytes")
                if not _is_subdomain(prefix):
                    errors.append(f"prefix part {_subdomain_text()}")
        case _:
            return (
                f"a valid label key {_qualified_text()} with an optional DNS subdomain prefix "
                "and '/' (e.g. 'example.com/MyName')",
            )
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _is_qualified(name):
        errors.append(f"name part {_qualified_text()}")
    return tuple(errors)


def label_value_errors(text: str) -> list[str]:
    if _is_label_value(text) and len(text) <= 63:
        return []
    errors = []
    if len(text.encode()) > 63:
        errors.append("must be no more than 63 bytes")
    if not _is_label_value(text):
        errors.append(
            _pattern_text(
                "a valid label must be an empty string or consist of alphanumeric characters, "
                f"'-', '_' or '.', {_ENDS}",
                _LABEL_VALUE,
                "MyValue",
                "my_value",
                "12345",
            )
        )
    return errors


def config_key_errors(text: str) -> list[str]:
    """Validate a key of a ConfigMap or Secret, which may become a file name."""
    errors = []
    if len(text) > 253:
        errors.append("must be no more than 253 characters")
    if not _is_config_key(text):
        errors.append(
            _pattern_text(
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                _CONFIG_KEY,
                "key.name",
                "KEY_NAME",
                "key-name",
            )
        )
    if text in (".", ".."):
        errors.append(f"must not be '{text}'")
    elif text.startswith(".."):
        errors.append("must not start with '..'")
    return errors


def env_name_errors(text: str) -> list[str]:
    if _is_env_name(text):
        return []
    return [
        "a valid environment variable name must consist only of printable ASCII characters "
        "other than '='"
    ]


def port_name_errors(text: str) -> list[str]:
    errors = []
    if len(text) > 15:
        errors.append("must be no more than 15 characters")
    if not _is_port_name(text):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(text):
        errors.append("must contain at least one letter (a-z)")
    if "--" in text:
        errors.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def header_name_errors(text: str) -> list[str]:
    if _is_header_name(text):
        return []
    return [
        _pattern_text(
            "a valid HTTP header must consist of alphanumeric characters or '-'",
            _HEADER_NAME,
            "X-Header-Name",
        )
    ]


def http_path_errors(text: str) -> list[str]:
    if _is_http_path(text):
        return []
    return [_pattern_text("Invalid path", _HTTP_PATH)]


def path_segment_errors(text: str) -> list[str]:
    """Validate the name of a role: anything that fits between two slashes of a URL."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in text]


def as_prefix(text: str) -> str:
    """Return a generateName in the form to validate.

    A trailing dash is valid, because letters will follow it.
    """
    return f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text


def _pattern_text(head: str, pattern: str, *examples: str) -> str:
    if not examples:
        return f"{head} (regex used for validation is '{pattern}')"
    listed = ",  or ".join(f"'{example}'" for example in examples)
    return f"{head} (e.g. {listed}, regex used for validation is '{pattern}')"


def _subdomain_text() -> str:
    return _pattern_text(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
        f"'-' or '.', {_ENDS}",
        _SUBDOMAIN,
        "example.com",
    )


def _qualified_text() -> str:
    return _pattern_text(
        f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}",
        _QUALIFIED,
        "MyName",
        "my.name",
        "123-abc",
    )


_1035_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_is_1035_label = re.compile(_1035_LABEL).fullmatch


def dns_1035_errors(text: str) -> list[str]:
    """Validate a DNS-1035 label, which begins with a letter.

    Used for names of custom resources and their versions.
    """
    errors = []
    if len(text) > 63:
        errors.append("must be no more than 63 characters")
    if _is_1035_label(text) is None:
        errors.append(
            _pattern_text(
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
                "start with an alphabetic character, and end with an alphanumeric character",
                _1035_LABEL,
                "my-name",
                "abc-123",
            )
        )
    return errors
