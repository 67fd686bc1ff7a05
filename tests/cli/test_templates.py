"""Output of `get` by JSON paths, as in kubectl."""

from typing import Any

import pytest

from onejob.cli.display.templates import (
    column_cells,
    parse_columns,
    parse_template,
    relaxed_path,
    render_template,
    sort_key,
)
from onejob.cli.errors import CommandError
from tests.cli.command_line import CommandLine

PODS: dict[str, Any] = {
    "items": [
        {
            "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}},
            "status": {"phase": "Failed", "restarts": 10, "ready": False},
        },
        {"metadata": {"name": "b"}, "status": {"phase": "Running", "restarts": 9}},
        {"metadata": {"name": "c"}, "status": {"phase": "Running"}},
    ]
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[*].metadata.name}", "a b c"),
        ("{.items[0].status.phase}", "Failed"),
        ("{.items[-1].metadata.name}", "c"),
        ("{$.items[0].metadata.name}", "a"),
        ("{.items[9].metadata.name}", ""),
        ("{.nothing.here}", ""),
        ("{.items[0].status.ready}", "false"),
        ("{.items[0].status}", '{"phase":"Failed","ready":false,"restarts":10}'),
        ("{.items[0].metadata.labels}", '{"app.kubernetes.io/name":"x"}'),
        (r"{.items[0].metadata.labels.app\.kubernetes\.io/name}", "x"),
        ("{.items[0].metadata.labels['app.kubernetes.io/name']}", "x"),
        ('{.items[?(@.status.phase=="Running")].metadata.name}', "b c"),
        ("name={.items[1].metadata.name};", "name=b;"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{@.status.phase}{"\\n"}{end}end',
         "a\tFailed\nb\tRunning\nc\tRunning\nend"),
        ("{'{'}{.items[0].metadata.name}{'}'}", "{a}"),
    ],
)  # fmt: skip
def test_template_prints_values_at_paths(template: str, text: str) -> None:
    assert render_template(parse_template(template), PODS) == text


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (".items", "expected paths in braces"),
        ("{.items", "missing brace or quote"),
        ("{}", "missing path"),
        ("{.items[}", "unrecognized path"),
        ("{.a..b}", "unrecognized path"),
        ("{range .items[*]}x", "{range} without {end}"),
        ("x{end}", "{end} without {range}"),
    ],
)
def test_invalid_template_error_has_reason(template: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        parse_template(template)


def test_columns_show_missing_values() -> None:
    columns = parse_columns(
        'NAME:.metadata.name,RESTARTS:status.restarts,X:{.a[?(@.b=="c,d")].e},ALL:.status'
    )
    assert [name for name, _ in columns] == ["NAME", "RESTARTS", "X", "ALL"]
    cells = column_cells(columns, PODS["items"][1])
    assert cells == ["b", "9", "<none>", '{"phase":"Running","restarts":9}']


@pytest.mark.parametrize("text", ["", "NAME", "NAME:", ":.a"])
def test_invalid_columns_error_has_expected_form(text: str) -> None:
    with pytest.raises(CommandError, match="for example NAME:"):
        parse_columns(text)


def test_sort_orders_numbers_numerically_and_missing_first() -> None:
    path = relaxed_path("{.status.restarts}")
    found = sorted(PODS["items"], key=lambda pod: sort_key(path, pod))
    assert [pod["metadata"]["name"] for pod in found] == ["c", "b", "a"]


def test_get_prints_and_sorts_by_paths(served: CommandLine) -> None:
    for name, value in (("b", "1"), ("a", "2")):
        text = f"kind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: '{value}'}}\n"
        (served.home / "map.yaml").write_text(f"apiVersion: v1\n{text}")
        assert served.run("apply", "-f", "map.yaml").returncode == 0
    one = served.run("get", "cm", "a", "-o", "jsonpath={.data.k}")
    assert (one.returncode, one.stdout) == (0, "2")
    words = ("get", "cm", "a", "b", "--sort-by", ".data.k")
    assert [line.split()[0] for line in served.run(*words, "--no-headers").stdout.splitlines()] == [
        *("b", "a")
    ]
    columns = served.run(*words, "-o", "custom-columns=NAME:.metadata.name,K:.data.k")
    assert columns.stdout == "NAME   K\nb      1\na      2\n"
    assert served.run(*words, "-o", "name").stdout == "configmap/b\nconfigmap/a\n"
    for output in ((), ("-o", "name")):
        misspelt = served.run("get", "cm", "--sort-by", ".data.misspelt", *output)
        assert misspelt.returncode == 2
        assert "--sort-by .data.misspelt: no object has this field" in misspelt.stderr
    bad = served.run("get", "cm", "-o", "jsonpth={.x}")
    assert bad.returncode == 2
    assert "'jsonpth={.x}' is not one of wide, json, yaml, name, jsonpath=" in bad.stderr
