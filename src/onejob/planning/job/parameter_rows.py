"""Parameter rows of a Job: one row per index, stored in a ConfigMap. Pure.

Each row is a line of POSIX shell that exports its values as environment variables of the container.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.planning.bad_input import BadInput
from onejob.planning.names import INDEX_VARIABLE

#: Job annotation: name of the ConfigMap that holds the rows.
PARAMS_ANNOTATION: Final = "onejob.dev/params"
#: Environment variable with the whole row as JSON, for programs that prefer it.
ROW_VARIABLE: Final = "ONEJOB_PARAMS"
#: Bytes. Linux limits one environment variable to 128 KiB; a ConfigMap holds 1 MiB.
_MAX_VARIABLE_BYTES: Final = 100_000
_MAX_CONFIG_MAP_BYTES: Final = 1_000_000
_ROWS_VARIABLE: Final = "ONEJOB_ROWS_"
#: Separator between the row selection and the user's command in the generated script.
ROW_IS_SET: Final = 'eval "$1"; set --\n'

_NOT_PARAMETERS: Final = frozenset({ROW_VARIABLE, INDEX_VARIABLE})

Row = Mapping[str, Any]


def put_rows(
    job: dict[str, Any], rows: Sequence[Row], numbers: Sequence[int] | None = None
) -> dict[str, Any]:
    """Make a parameterized Job run once per row, replacing its previous rows.

    With `numbers`, these are the indexes that programs see, instead of those from 0. Modifies `job`
    and returns the ConfigMap that it needs. Raises `BadInput` if the rows do not fit.
    """
    keys, per_key = _packed(rows, numbers)
    name = f"{job['metadata']['name']}-params"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = container["command"]
    script = command[-1].partition(ROW_IS_SET)[2] if ROW_IS_SET in command[-1] else command[-1]
    container["command"] = ["sh", "-c", _choice_of_row(len(keys), per_key) + ROW_IS_SET + script]
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


def row_text(row: Row, most: int = 60) -> str:
    """Return a row as `seed=54 lr=0.01`, cut to `most` characters."""
    text = " ".join(f"{name}={_text(value)}" for name, value in row.items())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _packed(rows: Sequence[Row], numbers: Sequence[int] | None) -> tuple[dict[str, str], int]:
    """Return the ConfigMap's data and the number of rows per key."""
    lines = [_shell_line(row, number) for number, row in enumerate(rows, 1)]
    if numbers is not None:
        lines = [
            f"{line} {INDEX_VARIABLE}={number}"
            for line, number in zip(lines, numbers, strict=False)
        ]
    per_key = max(1, _MAX_VARIABLE_BYTES // (max(len(line.encode()) for line in lines) + 1))
    keys = {
        f"rows-{start // per_key}": "\n".join(lines[start : start + per_key])
        for start in range(0, len(lines), per_key)
    }
    size = sum(len(text.encode()) for text in keys.values())
    if size > _MAX_CONFIG_MAP_BYTES:
        raise BadInput(
            f"{len(rows)} rows need {size:,} bytes, but a ConfigMap holds at most "
            f"{_MAX_CONFIG_MAP_BYTES:,}",
            f"split them, or let the program select its row by ${INDEX_VARIABLE}",
        )
    return keys, per_key


def rows_of(config_map: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rows stored by `put_rows`. Raises ValueError if the data has another format."""
    data = config_map.get("data") or {}
    found = []
    for number in range(len(data)):
        for line in data.get(f"rows-{number}", "").split("\n"):
            words = shlex.split(line)
            if words[:1] != ["export"]:
                raise ValueError(f"rows-{number} contains a line that is not a row")
            pairs = (word.partition("=") for word in words[1:])
            found.append({name: value for name, _, value in pairs if name not in _NOT_PARAMETERS})
    return found


def _shell_line(row: Row, number: int) -> str:
    """Return a row as an `export` line. Raises BadInput."""
    texts = {name: _text(value) for name, value in row.items()}
    for name, text in texts.items():
        if "\n" in text or "\0" in text:
            raise BadInput(f"row {number}: {name} contains a line break", "values must be one line")
    texts[ROW_VARIABLE] = msgspec.json.encode(row).decode()
    line = " ".join(["export", *(f"{name}={shlex.quote(text)}" for name, text in texts.items())])
    if len(line.encode()) >= _MAX_VARIABLE_BYTES:
        raise BadInput(f"row {number} is too long", f"at most {_MAX_VARIABLE_BYTES:,} bytes")
    return line


def _text(value: Any) -> str:
    """Return a value as text; "" for null."""
    match value:
        case str():
            return value
        case None:
            return ""
        case _:
            return msgspec.json.encode(value).decode()


def _choice_of_row(keys: int, per_key: int) -> str:
    """Return shell lines that leave the row of this Pod's index in $1."""
    if keys == 1:
        choose = f'set -- ${_ROWS_VARIABLE}0\nshift "${INDEX_VARIABLE}"'
    else:
        choose = (
            f'eval "set -- \\${_ROWS_VARIABLE}$(({INDEX_VARIABLE} / {per_key}))"\n'
            f"shift $(({INDEX_VARIABLE} % {per_key}))"
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
