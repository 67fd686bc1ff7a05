"""Parameter sweeps: rows of a table, one for each index of a Job.

The rows travel in a ConfigMap as lines that a POSIX shell reads, and reach a container as
environment variables, so that the same manifests run on any Kubernetes whose image has `sh`. A
volume would need a mount namespace for every Pod, and a file of its own for every row would be
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

#: On a Job: the ConfigMap that holds its rows.
PARAMS_ANNOTATION: Final = "onejob.dev/params"
#: The row as JSON, for programs that would rather read that.
ROW_VARIABLE: Final = "ONEJOB_PARAMS"
#: Where a program writes its result: the container's termination message.
RESULT_VARIABLE: Final = "ONEJOB_RESULT"
RESULT_PATH: Final = "/dev/termination-log"

#: The column of a file of plain lines.
LINE: Final = "line"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER: Final = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|\{([A-Za-z_][A-Za-z0-9_]*|)\}")
_INDEX: Final = "JOB_COMPLETION_INDEX"
_TAKEN: Final = frozenset({_INDEX, ROW_VARIABLE, RESULT_VARIABLE, "IFS"})
#: One variable of a process has at most 128 KiB; one ConfigMap 1 MiB.
_LONGEST_VARIABLE: Final = 100_000
_LARGEST_CONFIG_MAP: Final = 1_000_000
_ROWS_VARIABLE: Final = "ONEJOB_ROWS_"
#: What stands between the choice of the row and the command.
_ROW_IS_SET: Final = 'eval "$1"; set --\n'
_FILE_FOLDER: Final = "/onejob"
_FILE: Final = f"{_FILE_FOLDER}/params.json"

Row = Mapping[str, Any]


def read_parameters(file: str, axes: Sequence[str]) -> list[Row]:
    """The rows of a file, each combined with all combinations of `axes` (`name=v1,v2`)."""
    rows = _read_file(file) if file else [{}]
    named = [_axis(text) for text in axes]
    combinations: list[Row] = [
        dict(zip((name for name, _ in named), values, strict=True))
        for values in product(*(values for _, values in named))
    ]
    found = [_joined(row, more) for row in rows for more in combinations]
    for name in dict.fromkeys(name for row in found for name in row):
        if not _NAME.fullmatch(name):
            raise CommandError(
                f"parameter {name!r} cannot be the name of a variable",
                "use letters, digits and _, not starting with a digit",
            )
        if name in _TAKEN:
            raise CommandError(f"parameter {name}: this variable is set by onejob", "rename it")
    return found


def _joined(row: Row, more: Row) -> Row:
    if twice := row.keys() & more.keys():
        raise CommandError(f"parameter {min(twice)} is in the file and in --param", "rename one")
    return {**row, **more}


def _axis(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not name or not equals:
        raise CommandError(f"--param {text}: expected NAME=VALUE,VALUE", "for instance lr=0.1,0.01")
    return name, values.split(",")


def _read_file(file: str) -> list[Row]:
    try:
        data = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise CommandError(f"--params {file}: not a text file in UTF-8") from None
    suffix = Path(file).suffix.lower()
    if suffix == ".csv":
        rows = _csv(file, data)
    elif suffix in (".jsonl", ".ndjson"):
        rows = list(_json_lines(file, data))
    elif suffix in (".txt", "") or file == "-":
        rows = [{LINE: text} for text in data.splitlines() if text.strip()]
    else:
        raise CommandError(f"--params {file}: what is {suffix}?", "it reads .csv, .jsonl and .txt")
    if not rows:
        raise CommandError(f"--params {file}: there are no rows in it")
    return rows


def _csv(file: str, data: str) -> list[Row]:
    reader = csv.reader(io.StringIO(data, newline=""), strict=True)
    rows: list[Row] = []
    try:
        header = next(reader, [])
        if len(set(header)) != len(header):
            raise CommandError(f"--params {file}, line 1: a column is named twice")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise CommandError(
                    f"--params {file}, line {reader.line_num}: {len(cells)} cells, but "
                    f"{len(header)} columns in the first line"
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
            raise CommandError(f"--params {file}, line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise CommandError(f"--params {file}, line {number}: expected an object", '{"lr": 0.1}')
        yield row


def add_parameters(
    job: dict[str, Any], rows: Sequence[Row], command: Sequence[str]
) -> dict[str, Any]:
    """Makes `job` run `command` once for each row; returns the ConfigMap that it needs."""
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


def put_rows(job: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Makes a Job with parameters run once for each of these rows, instead of those it had;
    returns the ConfigMap that it needs."""
    keys, per_key = _packed(rows)
    name = f"{job['metadata']['name']}-params"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = container["command"]
    script = command[-1].partition(_ROW_IS_SET)[2] if _ROW_IS_SET in command[-1] else command[-1]
    container["command"] = ["sh", "-c", _choice_of_row(len(keys), per_key) + _ROW_IS_SET + script]
    container["env"] = [
        *(item for item in container["env"] if not item["name"].startswith(_ROWS_VARIABLE)),
        *(
            {
                "name": f"{_ROWS_VARIABLE}{number}",
                "valueFrom": {"configMapKeyRef": {"name": name, "key": key}},
            }
            for number, key in enumerate(keys)
        ),
    ]
    job["metadata"].setdefault("annotations", {})[PARAMS_ANNOTATION] = name
    job["spec"]["completions"] = len(rows)
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": keys}


def _packed(rows: Sequence[Row]) -> tuple[dict[str, str], int]:
    """The data of a ConfigMap, and how many rows each key holds."""
    lines = [_shell_line(row, number) for number, row in enumerate(rows, 1)]
    per_key = max(1, _LONGEST_VARIABLE // (max(len(line.encode()) for line in lines) + 1))
    keys = {
        f"rows-{start // per_key}": "\n".join(lines[start : start + per_key])
        for start in range(0, len(lines), per_key)
    }
    size = sum(len(text.encode()) for text in keys.values())
    if size > _LARGEST_CONFIG_MAP:
        raise CommandError(
            f"{len(rows)} rows take {size:,} bytes, and a ConfigMap holds {_LARGEST_CONFIG_MAP:,}",
            f"split them, or let the program read its row by ${_INDEX}",
        )
    return keys, per_key


def rows_of(config_map: Mapping[str, Any]) -> list[dict[str, str]]:
    """The rows that `add_parameters` put there."""
    data = config_map.get("data") or {}
    found = []
    for number in range(len(data)):
        for line in data.get(f"rows-{number}", "").split("\n"):
            pairs = (word.partition("=") for word in shlex.split(line)[1:])
            found.append({name: value for name, _, value in pairs if name != ROW_VARIABLE})
    return found


def _shell_line(row: Row, number: int) -> str:
    texts = {name: _text(value) for name, value in row.items()}
    for name, text in texts.items():
        if "\n" in text or "\0" in text:
            raise CommandError(
                f"row {number}: {name} has a line break in it", "values are one line"
            )
    texts[ROW_VARIABLE] = msgspec.json.encode(row).decode()
    line = " ".join(["export", *(f"{name}={shlex.quote(text)}" for name, text in texts.items())])
    if len(line.encode()) >= _LONGEST_VARIABLE:
        raise CommandError(f"row {number} is too long", f"at most {_LONGEST_VARIABLE:,} bytes")
    return line


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case None:
            return ""
        case _:
            return msgspec.json.encode(value).decode()


def _shell_word(word: str, names: Mapping[str, None]) -> str:
    """A word of the command as the shell reads it, `{name}` replaced by its variable."""
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
                f"{{{name}}}: there is no such parameter (there are {known})",
                f"write {{{{{name}}}}} for the text itself",
            )
    if at < len(word) or not word:
        pieces.append(shlex.quote(word[at:]))
    return "".join(pieces)


def _choice_of_row(keys: int, per_key: int) -> str:
    """Shell lines that leave the row of this index in $1."""
    if keys == 1:
        choose = f'set -- ${_ROWS_VARIABLE}0\nshift "${_INDEX}"'
    else:
        choose = (
            f'eval "set -- \\${_ROWS_VARIABLE}$(({_INDEX} / {per_key}))"\n'
            f"shift $(({_INDEX} % {per_key}))"
        )
    forget = " ".join(f"{_ROWS_VARIABLE}{number}" for number in range(keys))
    return "\n".join(
        [
            "# The row of this index becomes variables, then the command runs.",
            "set -f; IFS='\n'",
            choose,
            f"unset IFS {forget}; set +f\n",
        ]
    )
