"""Parameter sweeps: rows of a table become indexes of a Job, and results are collected."""

import csv
import io
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.cli.manifests.job_from_command import CommandJob, job_document
from onejob.cli.manifests.params import add_parameters, read_parameters
from onejob.diagnosis.results import collect
from onejob.planning.bad_input import BadInput
from onejob.planning.job.parameter_rows import rows_of
from onejob.planning.names import INDEX_ANNOTATION
from tests.cli.command_line import CommandLine

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\x85  "))


def swept(rows: list[Any], *command: str) -> tuple[dict[str, Any], dict[str, Any]]:
    job = job_document(CommandJob(command, name="x"), {})
    return job, add_parameters(job, rows, command)


def run_index(job: dict[str, Any], config_map: dict[str, Any], index: int, shell: str) -> str:
    """Run the container of an index by hand; return its output."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    environment = {"JOB_COMPLETION_INDEX": str(index), "PATH": "/usr/bin:/bin"}
    for variable in container["env"]:
        if source := variable.get("valueFrom"):
            environment[variable["name"]] = config_map["data"][source["configMapKeyRef"]["key"]]
    command = [*shell.split(), *container["command"][1:]]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


@given(st.lists(st.fixed_dictionaries({"a": TEXTS, "b": TEXTS}), min_size=1, max_size=4))
def test_rows_survive_the_way_to_the_results(rows: list[dict[str, str]]) -> None:
    _, config_map = swept(rows, "true")
    assert rows_of(config_map) == rows


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
def test_no_value_is_read_by_the_shell(shell: str) -> None:
    if subprocess.run(["which", shell.split()[0]], capture_output=True).returncode:
        pytest.skip(f"{shell} is not installed")
    hard = ["a b", "it's", "$HOME `id` $(id)", '"', "\\n", "*", "", "-n", "ü", ";exit 3"]
    job, config_map = swept([{"v": text} for text in hard], "printf", "%s|%s", "<{v}>", "{index}")
    for index, text in enumerate(hard):
        assert run_index(job, config_map, index, shell) == f"<{text}>|{index}"


def test_many_rows_are_spread_over_variables() -> None:
    rows = [{"v": f"{number}-" + "x" * 300} for number in range(1000)]
    job, config_map = swept(rows, "printf", "%s", "{v}")
    assert len(config_map["data"]) > 3
    assert all(len(text) <= 100_000 for text in config_map["data"].values())
    for index in (0, 500, 999):
        assert run_index(job, config_map, index, "sh") == rows[index]["v"]
    assert rows_of(config_map) == rows


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("x.csv", 'lr,tag\n0.1,"b,c"\n', [{"lr": "0.1", "tag": "b,c"}]),
        ("x.jsonl", '{"n": 1, "on": true}\n\n{"n": 2.5}\n', [{"n": 1, "on": True}, {"n": 2.5}]),
        ("x.txt", "one\n\ntwo words\n", [{"line": "one"}, {"line": "two words"}]),
    ],
)
def test_files_are_read(tmp_path: Path, name: str, text: str, rows: list[Any]) -> None:
    (tmp_path / name).write_text(text)
    assert read_parameters(str(tmp_path / name), ()) == rows


def test_axes_are_combined() -> None:
    rows = read_parameters("", ["a=1,2", "b=x,y"])
    assert [(row["a"], row["b"]) for row in rows] == [
        ("1", "x"),
        ("1", "y"),
        ("2", "x"),
        ("2", "y"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "axes", "problem"),
    [
        ("x.csv", "a,b\n1\n", (), "line 2: 1 cell, but 2 columns"),
        ("x.csv", "a;b\n1;2\n", (), "line 1: columns are separated by ';'"),
        ("x.csv", "a\tb\n1\t2\n", (), "line 1: columns are separated by tabs"),
        ("x.csv", "a,a\n1,2\n", (), "duplicate column name"),
        ("x.csv", "a\n", (), "no rows"),
        ("x.csv", "a b\n1\n", (), "'a b' is not a valid variable name"),
        ("x.csv", "IFS\n1\n", (), "reserved by onejob"),
        ("x.jsonl", "{}\nnope\n", (), "line 2: invalid JSON"),
        ("x.jsonl", "[1]\n", (), "line 1: expected an object"),
        ("x.xls", "", (), "unsupported file type .xls"),
        ("x.csv", "a\n1\n", ("a=2",), "in the file and by --param"),
        ("x.csv", "a\n1\n", ("b",), "expected NAME=VALUE"),
    ],
)
def test_bad_tables_are_refused(
    tmp_path: Path, name: str, text: str, axes: tuple[str, ...], problem: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=problem):
        read_parameters(str(tmp_path / name), axes)


@pytest.mark.parametrize(
    ("row", "word", "problem"),
    [
        ({"a": "1\n2"}, "x", "row 1: a contains a line break"),
        ({"a": "1"}, "{b}", r"{b}: unknown parameter$"),
        ({"a": "x" * 100_000}, "x", "row 1 is too long"),
    ],
)
def test_bad_rows_are_refused(row: dict[str, str], word: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        swept([row], word)


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(BadInput, match="a ConfigMap holds"):
        swept([{"a": "x" * 1000}] * 1000, "true")


def test_braces_that_are_no_parameters_stay() -> None:
    job, config_map = swept(
        [{"a": "1"}], "printf", "%s ", "{print $1}", "{{a}}", "{}", "${a", "{a}"
    )
    assert run_index(job, config_map, 0, "sh") == "{print $1} {a} {} ${a 1 "


def test_a_sweep_runs_and_its_results_are_collected(onejob: CommandLine) -> None:
    (onejob.home / "grid.csv").write_text(
        "lr,tag\n" + "".join(f"0.{n},t{n}\n" for n in range(1, 7))
    )
    script = 'echo "{\\"score\\": $1}" > $ONEJOB_RESULT; test $1 != 0.3'
    words = ("--params", "grid.csv", "--name", "train", "--", "sh", "-c", script, "sh", "{lr}")
    done = onejob.run("run", *words)
    assert done.returncode == 1
    shown = onejob.run("results", "job/train")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    headers = "INDEX lr tag STATE EXIT SECONDS CPU MEMORY TRIES score"
    assert lines[0].split() == headers.split()
    assert lines[3].split()[:5] == ["2", "0.3", "t3", "Failed", "1"]
    assert "Next: onejob results train --failed, onejob run --resume train\n" in done.stdout
    assert "[2 lr=0.3 tag=t3]" not in done.stdout
    assert "(index 2: lr=0.3 tag=t3) after" in done.stdout
    rows = list(csv.DictReader(io.StringIO(onejob.run("results", "train", "-o", "csv").stdout)))
    assert [row["lr"] for row in rows] == [f"0.{n}" for n in range(1, 7)]
    assert [row["state"] for row in rows].count("Succeeded") == 5
    assert [row["score"] for row in rows] == [f"0.{n}" for n in range(1, 7)]
    assert all(int(row["peak_memory_bytes"]) > 100_000 for row in rows)
    assert any("." in row["seconds"] for row in rows)
    found = json.loads(onejob.run("results", "train", "-o", "json").stdout)
    assert [item["result"] for item in found] == [{"score": n / 10} for n in range(1, 7)]
    failed = json.loads(onejob.run("results", "train", "--failed", "-o", "json").stdout)
    assert [(item["index"], item["exitCode"]) for item in failed] == [(2, 1)]
    joblog = onejob.run("results", "train", "-o", "joblog").stdout.splitlines()
    assert joblog[0].split("\t")[:2] == ["Seq", "Host"]
    (third,) = (line for line in joblog if line.startswith("3\t"))
    assert third.split("\t")[6:] == ["1", "0", f"sh -c {shlex.quote(script)} sh 0.3"]


@pytest.mark.parametrize(
    "words",
    [
        ("--params", "x.csv", "job.yaml"),
        ("--params", "absent.csv", "--", "true"),
        ("--param", "a=1", "--completions", "2", "--", "true"),
    ],
)
def test_bad_usage_is_one_line(onejob: CommandLine, words: tuple[str, ...]) -> None:
    done = onejob.run("run", *words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_an_index_that_is_none_is_left_out() -> None:
    """Any user who may write Pods may write their annotations."""
    pods = [
        {"metadata": {"name": name, "annotations": {INDEX_ANNOTATION: text}}}
        for name, text in (("a", "one"), ("b", "1"))
    ]
    assert [(result.pod, result.index) for result in collect(pods, [])] == [("a", None), ("b", 1)]
