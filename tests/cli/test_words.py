"""Parsing of resource names and options, and Jobs made of command lines."""

from typing import Any

import click
import pytest

from onejob.cli.display.durations import duration
from onejob.cli.errors import CommandError
from onejob.cli.main import COMMANDS, cli
from onejob.cli.manifests.job_from_command import CommandJob, job_document, name_for
from onejob.cli.options import parse_image_map, parse_listen
from onejob.cli.resource_args import parse_resource_args
from onejob.cli.sources.awaiting import WaitCondition
from onejob.diagnosis.durations import short_seconds
from tests.cli.build import finished
from tests.cli.build import job_document as a_job_document

FAILED = a_job_document(status=finished("Failed", "x", "why"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["jobs"], ["job.batch/"]),
        (["job", "a", "b"], ["job.batch/a", "job.batch/b"]),
        (["job/a", "po/b"], ["job.batch/a", "pod/b"]),
        (["jobs,cj"], ["job.batch/", "cronjob.batch/"]),
        (["JOB"], ["job.batch/"]),
        (["jobs.batch"], ["job.batch/"]),
        (["ev"], ["event/"]),
        (
            ["all"],
            [
                "pod/", "service/", "cronjob.batch/", "job.batch/",
                "cronworkflow.onejob.dev/", "workflow.onejob.dev/", "daemonset.apps/",
                "deployment.apps/", "replicaset.apps/", "statefulset.apps/",
                "horizontalpodautoscaler.autoscaling/",
            ],
        ),
    ],
)  # fmt: skip
def test_nouns_are_kubectls(words: list[str], expected: list[str]) -> None:
    assert [str(noun) for noun in parse_resource_args(words)] == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], "no object specified"), (["jbo"], "did you mean job"), (["job/"], "missing name")],
)
def test_wrong_nouns_get_a_hint(words: list[str], expected: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_resource_args(words)
    assert expected in caught.value.lines[0]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("5", 5), ("0.5", 0.5), ("100ms", 0.1)]
)
def test_durations_are_gos_or_seconds(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


def test_other_durations_are_refused() -> None:
    with pytest.raises(click.BadParameter, match="not a duration such as 90s"):
        duration("soon")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3590, "0.0s"),
        (0.04, "0.0s"),
        (9.94, "9.9s"),
        (59.4, "59s"),
        (61, "1m01s"),
        (7260, "2h01m"),
    ],
)
def test_seconds_are_short(seconds: float, text: str) -> None:
    assert short_seconds(seconds) == text


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["make"], "make"),
        (["./Train_Model.py"], "train-model"),
        (["/usr/bin/["], "job"),
        (["x" * 80], "x" * 52),
    ],
)
def test_a_command_names_its_job(command: list[str], name: str) -> None:
    assert name_for(command) == name


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({}, {}),
        ({"retries": 0}, {"backoffLimit": 0}),
        ({"parallelism": 3}, {"parallelism": 3, "completions": 3}),
        ({"indexed": True}, {"completions": 1, "completionMode": "Indexed"}),
        (
            {"indexed": True, "completions": 4, "retries": 2},
            {"completions": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 2},
        ),
        ({"completions": 5, "parallelism": 2}, {"completions": 5, "parallelism": 2}),
        ({"working_dir": ""}, {}),
        ({"deadline_seconds": 60}, {"activeDeadlineSeconds": 60}),
    ],
)
def test_options_become_fields(options: dict[str, Any], spec: dict[str, Any]) -> None:
    made = job_document(CommandJob(["date"], **options), {})["spec"]
    del made["template"]
    assert made == spec


def test_variables_are_given_or_taken_from_the_environment() -> None:
    job = job_document(CommandJob(["date"], env=["A=1=2", "B"]), {"B": "two"})
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "A", "value": "1=2"}, {"name": "B", "value": "two"}]
    with pytest.raises(CommandError, match="not set in this environment"):
        job_document(CommandJob(["date"], env=["C"]), {})


def test_image_maps_hold_commands() -> None:
    assert parse_image_map(["a/b:1=sh -c 'x y'"]) == {"a/b:1": ("sh", "-c", "x y")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:1", ("127.0.0.1", 1)), (":7443", ("127.0.0.1", 7443)), ("[::1]:0", ("::1", 0))],
)
def test_addresses_to_listen_on(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    ("condition", "document", "expected"),
    [
        ("", a_job_document(), None),
        ("", a_job_document(status=finished("Complete", "x")), (True, "Complete")),
        ("", FAILED, (False, "Failed: why")),
        ("", None, (False, "was deleted")),
        ("delete", None, (True, "deleted")),
        ("delete", a_job_document(), None),
        ("condition=complete", a_job_document(status=finished("Failed", "x")), None),
        (
            "condition=Failed",
            a_job_document(status=finished("Failed", "x")),
            (True, "condition met"),
        ),
        ("condition=Failed=false", a_job_document(status=finished("Failed", "x")), None),
    ],
)
def test_conditions_are_judged(
    condition: str, document: dict[str, Any] | None, expected: tuple[bool, str] | None
) -> None:
    verdict = WaitCondition.parse(condition).judge(document)
    assert (verdict and (verdict.good, verdict.text)) == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    context = click.Context(cli, info_name="onejob")
    command = cli.get_command(context, name)
    assert command is not None
    assert command.help
    assert "Examples:" in (command.epilog or "")
    assert f"onejob {name}" in (command.epilog or "")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"onejob {name} {parameter.opts[0]} has no help"
