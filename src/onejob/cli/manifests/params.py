"""Parameter sweeps: rows of a table, one for each index of a Job.

The rows travel in a ConfigMap as lines that a POSIX shell reads, and reach a container as
environment variables, so that the same manifests run on any Kubernetes whose image has `sh`.
Rejected: a volume, which would need a mount namespace for every Pod; a file per row, which would be
written once for every Pod.
"""

import csv
import io
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from onejob.cli.errors import CommandError
from onejob.planning.counts import counted
from onejob.planning.job.parameter_rows import ROW_VARIABLE, Row, put_rows

#: Variable with the path of the result file: the container's termination message.
RESULT_VARIABLE: Final = "ONEJOB_RESULT"
RESULT_PATH: Final = "/dev/termination-log"

#: Column name for files of plain lines.
LINE: Final = "line"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER: Final = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|\{([A-Za-z_][A-Za-z0-9_]*|)\}")
_INDEX: Final = "JOB_COMPLETION_INDEX"
_TAKEN: Final = frozenset({_INDEX, ROW_VARIABLE, RESULT_VARIABLE, "IFS"})
_FILE_FOLDER: Final = "/onejob"
_FILE: Final = f"{_FILE_FOLDER}/params.json"


def read_parameters(file: str, axes: Sequence[str]) -> list[Row]:
    """Return the rows of a file, each with all combinations of `axes` (`name=v1,v2`).

    Raises CommandError for an unreadable file, and for names that cannot be variables.
    """
    rows = _read_file(file) if file else [{}]
    named = [_parse_axis(text) for text in axes]
    combinations: list[Row] = [
        dict(zip((name for name, _ in named), values, strict=True))
        for values in product(*(values for _, values in named))
    ]
    found = [_merge_rows(row, more) for row in rows for more in combinations]
    for name in dict.fromkeys(name for row in found for name in row):
        if not _NAME.fullmatch(name):
            raise CommandError(
                f"parameter {name!r} is not a valid variable name",
                "use letters, digits and _, not starting with a digit",
            )
        if name in _TAKEN:
            raise CommandError(
                f"parameter {name}: this variable is reserved by onejob", "rename it"
            )
    return found


def _merge_rows(row: Row, more: Row) -> Row:
    """Merge two rows. Raises CommandError for a parameter in both."""
    if twice := row.keys() & more.keys():
        raise CommandError(
            f"parameter {min(twice)} is defined in the file and by --param", "rename one"
        )
    return {**row, **more}


def _parse_axis(text: str) -> tuple[str, list[str]]:
    """Parse `NAME=VALUE,…`. Raises CommandError."""
    name, equals, values = text.partition("=")
    if not name or not equals:
        raise CommandError(f"--param {text}: expected NAME=VALUE,VALUE", "for example lr=0.1,0.01")
    return name, values.split(",")


def _read_file(file: str) -> list[Row]:
    try:
        data = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise CommandError(f"--params {file}: not a UTF-8 text file") from None
    suffix = Path(file).suffix.lower()
    if suffix == ".csv":
        rows = _read_csv(file, data)
    elif suffix in (".jsonl", ".ndjson"):
        rows = list(_json_lines(file, data))
    elif suffix in (".txt", "") or file == "-":
        rows = [{LINE: text} for text in data.splitlines() if text.strip()]
    else:
        raise CommandError(
            f"--params {file}: unsupported file type {suffix}", "use .csv, .jsonl or .txt"
        )
    if not rows:
        raise CommandError(f"--params {file}: the file contains no rows")
    return rows


def _refuse_other_separators(file: str, header: str) -> None:
    """Raise CommandError for `;` or tabs: spreadsheets use them in locales with a decimal comma."""
    for separator, name in ((";", "';'"), ("\t", "tabs")):
        if separator in header:
            raise CommandError(
                f"--params {file}, line 1: columns are separated by {name}", "use commas"
            )


def _read_csv(file: str, data: str) -> list[Row]:
    reader = csv.reader(io.StringIO(data, newline=""), strict=True)
    rows: list[Row] = []
    try:
        header = next(reader, [])
        if len(set(header)) != len(header):
            raise CommandError(f"--params {file}, line 1: duplicate column name")
        if len(header) == 1:
            _refuse_other_separators(file, header[0])
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise CommandError(
                    f"--params {file}, line {reader.line_num}: {counted(len(cells), 'cell')}, but "
                    f"{counted(len(header), 'column')} in the first line"
                )
            rows.append(dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise CommandError(f"--params {file}, line {reader.line_num}: {error}") from None
    return rows


def _json_lines(file: str, data: str) -> Iterator[Row]:
    for number, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        try:
            row = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise CommandError(f"--params {file}, line {number}: invalid JSON: {error}") from None
        if not isinstance(row, dict):
            raise CommandError(f"--params {file}, line {number}: expected an object", '{"lr": 0.1}')
        yield row


def add_parameters(
    job: dict[str, Any], rows: Sequence[Row], command: Sequence[str]
) -> dict[str, Any]:
    """Make `job` run `command` once for each row; return the ConfigMap that it needs."""
    names = dict.fromkeys(name for row in rows for name in row)
    words = [_shell_word(word, names) for word in command]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    lines = []
    if any(_FILE in word for word in words):
        container["volumeMounts"] = [{"name": "row", "mountPath": _FILE_FOLDER}]
        job["spec"]["template"]["spec"]["volumes"] = [{"name": "row", "emptyDir": {}}]
        lines.append(f"printf '%s\\n' \"${ROW_VARIABLE}\" > {_FILE} || exit 1")
    lines.append(f"exec {' '.join(words)}")
    container["command"] = ["sh", "-c", "\n".join(lines)]
    container["env"] = [
        *container.get("env", ()),
        {"name": RESULT_VARIABLE, "value": RESULT_PATH},
    ]
    return put_rows(job, rows)


def _shell_word(word: str, names: Mapping[str, None]) -> str:
    """Return a word of the command quoted for the shell, with `{name}` replaced by its variable."""
    pieces = []
    at = 0
    for match in _PLACEHOLDER.finditer(word):
        if match.start() > at:
            pieces.append(shlex.quote(word[at : match.start()]))
        at = match.end()
        literal, name = match.groups()
        if literal is not None:
            pieces.append(shlex.quote("{" + literal + "}"))
        elif (name or LINE) in names:
            pieces.append(f'"${name or LINE}"')
        elif name == "index":
            pieces.append(f'"${_INDEX}"')
        elif name == "file":
            pieces.append(_FILE)
        elif not name:
            pieces.append("'{}'")
        else:
            known = ", ".join((*names, "index", "file"))
            raise CommandError(
                f"{{{name}}}: unknown parameter",
                f"known parameters: {known}; write {{{{{name}}}}} for the literal text",
            )
    if at < len(word) or not word:
        pieces.append(shlex.quote(word[at:]))
    return "".join(pieces)
