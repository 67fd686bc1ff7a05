"""`onejob init` and `onejob schema`."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft7Validator

from onejob.api.schema.json_schema import json_schema
from onejob.cli.commands.init import STARTERS, served_starters, starter
from onejob.cli.known_kinds import BUILT_IN
from onejob.wire.kinds import KINDS
from tests.cli.command_line import EXAMPLES, CommandLine

STARTER_FILES = Path(__file__).resolve().parents[2] / "src/onejob/cli/starters"


@pytest.mark.parametrize("what", ["job", "sweep"])
def test_starter_runs_to_completion(onejob: CommandLine, what: str) -> None:
    made = onejob.run("init", what)
    assert made.stdout == f"{what}.yaml written (next: onejob run {what}.yaml)\n"
    done = onejob.run("run", f"{what}.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_sweep_starter_has_a_result_for_each_row(onejob: CommandLine) -> None:
    onejob.run("init", "sweep")
    onejob.run("run", "sweep.yaml")
    shown = onejob.run("results", "sweep").stdout
    for row in ("rate 0.1 with depth 3", "rate 0.01 with depth 5"):
        assert row in shown


def test_every_offered_starter_is_valid(onejob: CommandLine) -> None:
    for what in served_starters():
        (onejob.home / f"{what}.yaml").write_text(starter(what))
    checked = onejob.run("validate", ".")
    assert checked.returncode == 0, checked.stderr


def test_every_starter_has_a_file_and_is_offered_only_if_its_kind_is_served() -> None:
    assert {path.stem for path in STARTER_FILES.glob("*.yaml")} == STARTERS.keys()
    served = {kind.kind for kind in KINDS}
    assert set(served_starters()) == {name for name in STARTERS if STARTERS[name] in served}


def test_init_overwrites_only_with_force(onejob: CommandLine) -> None:
    (onejob.home / "job.yaml").write_text("mine")
    refused = onejob.run("init")
    assert refused.returncode == 2
    assert refused.stderr == ("error: job.yaml exists (use --force, or -o FILE for another name)\n")
    assert (onejob.home / "job.yaml").read_text() == "mine"
    assert onejob.run("init", "--force").returncode == 0
    assert (onejob.home / "job.yaml").read_text() == starter("job")


def test_init_prints_to_standard_output(onejob: CommandLine) -> None:
    assert onejob.run("init", "cronjob", "-o", "-").stdout == starter("cronjob")


def test_init_of_unknown_starter_lists_the_known_ones(onejob: CommandLine) -> None:
    refused = onejob.run("init", "deployment")
    assert refused.returncode == 2
    assert "choose one of job, cronjob" in refused.stderr


SCHEMA = json_schema([BUILT_IN.named("job")])


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def violations(schema: dict[str, Any], document: Any) -> list[str]:
    return [error.message for error in Draft7Validator(schema).iter_errors(document)]


def test_schema_of_all_kinds_accepts_examples_and_starters() -> None:
    schema = json_schema([kind for kind in KINDS if "create" in kind.verbs and "get" in kind.verbs])
    Draft7Validator.check_schema(schema)
    texts = [starter(name) for name in served_starters()]
    for text in [*texts, *(path.read_text() for path in EXAMPLES.glob("*.yaml"))]:
        for document in documents(text):
            assert violations(schema, document) == []


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("completoins", 3, "'completoins' was unexpected"),
        ("completions", "three", "'three' is not of type 'integer'"),
        ("backoffSeconds", "ten", "'ten' is not of type 'integer'"),
    ],
)
def test_schema_of_jobs_rejects_mistakes(field: str, value: object, problem: str) -> None:
    (job,) = documents(starter("job"))
    job["spec"][field] = value
    (found,) = violations(SCHEMA, job)
    assert problem in found


def test_schema_of_jobs_has_the_fields_and_documentation_of_onejob() -> None:
    (job,) = documents(starter("job"))
    job["spec"] |= {"backoffSeconds": 1, "failedPodsLimit": 2}
    assert violations(SCHEMA, job) == []
    fields = SCHEMA["definitions"]["io.k8s.api.batch.v1.JobSpec"]["properties"]
    assert fields["backoffSeconds"]["description"].startswith("onejob extension")
    assert "parallel" in fields["parallelism"]["description"].lower()


def test_schema_command_prints_json_and_yaml(onejob: CommandLine) -> None:
    printed = onejob.run("schema", "job")
    assert msgspec.json.decode(printed.stdout) == SCHEMA
    assert yaml.safe_load(onejob.run("schema", "job", "-o", "yaml").stdout) == SCHEMA


def test_schema_of_unknown_kind_is_refused_with_a_hint(onejob: CommandLine) -> None:
    refused = onejob.run("schema", "jbo")
    assert refused.returncode == 2
    assert "did you mean job" in refused.stderr
