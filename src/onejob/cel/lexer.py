"""Lexer: splits the text of an expression into tokens."""

import re
from dataclasses import dataclass
from typing import Any

from onejob.cel.errors import CompileError, issue_at
from onejob.cel.values import UInt

#: Maximum length in code points. Upstream rejects longer expressions with the same message.
MAX_EXPRESSION_LENGTH = 100_000

_PATTERN = re.compile(
    r"""
    (?P<skip>[ \t\r\n\f]+|//[^\n]*)
  | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
  | (?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|\d+)
  | (?P<prefix>[rR]?[bB]|[bB]?[rR])?(?P<quote>\"\"\"|'''|"|')
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | `(?P<escaped>[A-Za-z0-9_.\-/ ]+)`
  | (?P<operator>==|!=|<=|>=|&&|\|\||[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip
_CODE_ESCAPE = re.compile(
    r"[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})"
)
_STRING_ENDS = {
    quote: re.compile(rf"(?:\\.|{body})*?{quote}", re.DOTALL)
    for quote, body in (('"""', "."), ("'''", "."), ('"', r"[^\n\r]"), ("'", r"[^\n\r]"))
}


@dataclass(frozen=True, slots=True)
class Token:
    #: "name", "escaped", "literal", "end", or the operator itself.
    kind: str
    position: int
    text: str
    value: Any = None


def tokenize(source: str) -> list[Token]:
    if len(source) > MAX_EXPRESSION_LENGTH:
        message = (
            f"expression code point size exceeds limit: size: {len(source)}, "
            f"limit {MAX_EXPRESSION_LENGTH}"
        )
        raise CompileError([issue_at("", 0, message)])
    tokens = []
    position = 0
    while position < len(source):
        match = _PATTERN.match(source, position)
        if match is None:
            message = f"Syntax error: token recognition error at: '{source[position]}'"
            raise CompileError([issue_at(source, position, message)])
        end = match.end()
        if match["quote"]:
            token, end = _string(source, position, match["prefix"] or "", match["quote"], end)
            tokens.append(token)
        elif not match["skip"]:
            tokens.append(_token(source, position, match))
        position = end
    tokens.append(Token("end", len(source), "<EOF>"))
    return tokens


def _token(source: str, position: int, match: re.Match[str]) -> Token:
    text = match[0]
    if match["name"]:
        return Token("name", position, text)
    if match["escaped"]:
        return Token("escaped", position, match["escaped"])
    if match["operator"]:
        return Token(text, position, text)
    if match["float"]:
        return Token("literal", position, text, float(text))
    digits = text.rstrip("uU")
    # Python refuses to parse thousands of digits; they are out of range anyway.
    number = int(digits, 16 if digits.startswith("0x") else 10) if len(digits) < 30 else 1 << 64
    if match["uint"]:
        if number >= 1 << 64:
            raise CompileError([issue_at(source, position, "invalid uint literal")])
        return Token("literal", position, text, UInt(number))
    # 2**63 is accepted here: the parser allows it only after a minus sign.
    if number > 1 << 63:
        raise CompileError([issue_at(source, position, "invalid int literal")])
    return Token("literal", position, text, number)


def _string(source: str, start: int, prefix: str, quote: str, inner: int) -> tuple[Token, int]:
    raw, as_bytes = "r" in prefix.lower(), "b" in prefix.lower()
    if raw:
        found = source.find(quote, inner)
        end = found + len(quote) if found >= 0 else -1
        if len(quote) == 1 and "\n" in source[inner : max(end, inner)]:
            end = -1
    else:
        match = _STRING_ENDS[quote].match(source, inner)
        end = match.end() if match else -1
    if end < 0:
        message = f"Syntax error: token recognition error at: '{source[start : start + 20]}'"
        raise CompileError([issue_at(source, start, message)])
    body = source[inner : end - len(quote)]
    value: str | bytes
    if as_bytes:
        value = body.encode() if raw else _unescape_bytes(source, start, body)
    else:
        value = body if raw else _unescape(source, start, body)
    return Token("literal", start, source[start:end], value), end


def _pieces(source: str, start: int, body: str) -> list[tuple[str, bool]]:
    """Return the pieces of a literal; True marks a character given as an escape code below 256."""
    pieces = []
    index = 0
    while index < len(body):
        slash = body.find("\\", index)
        if slash < 0:
            pieces.append((body[index:], False))
            break
        if slash > index:
            pieces.append((body[index:slash], False))
        following = body[slash + 1 : slash + 2]
        if following in _SIMPLE_ESCAPES and following:
            pieces.append((_SIMPLE_ESCAPES[following], False))
            index = slash + 2
            continue
        match = _CODE_ESCAPE.match(body, slash + 1)
        code = None
        if match:
            octal = match[4]
            code = int(octal, 8) if octal else int(match[1] or match[2] or match[3], 16)
        if match is None or code is None or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            message = f"Syntax error: invalid escape sequence '\\{following}'"
            raise CompileError([issue_at(source, start, message)])
        pieces.append((chr(code), bool(match[1] or match[4])))
        index = match.end()
    return pieces


def _unescape(source: str, start: int, body: str) -> str:
    if "\\" not in body:
        return body
    return "".join(piece for piece, _ in _pieces(source, start, body))


def _unescape_bytes(source: str, start: int, body: str) -> bytes:
    pieces = _pieces(source, start, body)
    return b"".join(text.encode("latin-1" if code else "utf-8") for text, code in pieces)
