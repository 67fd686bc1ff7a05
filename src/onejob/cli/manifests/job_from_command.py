"""Job document for a single command line, without a YAML manifest."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import msgspec

from onejob.cli.errors import CommandError

#: Image name for the process runtime, which runs the command on this machine: the image is only a
#: label there.
HOST_IMAGE: Final = "host"
_MAX_NAME: Final = 52
_INTERPRETER: Final = re.compile(
    r"python[0-9.]*|pypy[0-9.]*|(?:ba|da|k|z)?sh|node|ruby[0-9.]*|perl|php|rscript|julia|lua"
)
_SCRIPT_SUFFIX: Final = re.compile(r"\.(?:py|sh|bash|js|mjs|rb|pl|php|r|jl|lua)$")


class CommandJob(msgspec.Struct, frozen=True):
    command: Sequence[str]
    name: str = ""
    image: str = HOST_IMAGE
    completions: int | None = None
    parallelism: int | None = None
    indexed: bool = False
    #: Number of failed Pods that are replaced: per Job, or per index of an Indexed Job. None uses
    #: the API's default.
    retries: int | None = None
    deadline_seconds: int | None = None
    #: `NAME=VALUE`, or `NAME` to take the value from this environment.
    env: Sequence[str] = ()
    #: Working directory; "" leaves it to the node.
    working_dir: str = ""


def job_document(job: CommandJob, environment: dict[str, str]) -> dict[str, Any]:
    name = job.name or name_for(job.command)
    container: dict[str, Any] = {"name": "main", "image": job.image}
    if job.command:
        container["command"] = list(job.command)
    if job.working_dir:
        container["workingDir"] = job.working_dir
    if job.env:
        container["env"] = [_variable(text, environment) for text in job.env]
    completions = job.completions
    if completions is None and (job.indexed or job.parallelism is not None):
        # One Pod per slot; a Job without completions would be a work queue.
        completions = job.parallelism or 1
    spec: dict[str, Any] = {
        "completions": completions,
        "parallelism": job.parallelism,
        "completionMode": "Indexed" if job.indexed else None,
        # A failed index must not end the other indexes.
        "backoffLimitPerIndex" if job.indexed else "backoffLimit": job.retries,
        "activeDeadlineSeconds": job.deadline_seconds,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {field: value for field, value in spec.items() if value is not None},
    }


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a command can inherit: UTF-8 only, as start requests are JSON."""
    from onejob.node.process.runtime_settings import is_text

    return {name: value for name, value in environment.items() if is_text(name) and is_text(value)}


def name_for(command: Sequence[str]) -> str:
    """Return a Job name derived from the program: `make`; `train` of `python3 -u train.py`."""
    program = _script_of(command) or PurePath(command[0]).name
    stem = _SCRIPT_SUFFIX.sub("", program.lower())
    words = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    return words[:_MAX_NAME].strip("-") or "job"


def _script_of(command: Sequence[str]) -> str:
    """Return the script or module that an interpreter runs; "" if it is none, or runs code given
    on the command line."""
    if not _INTERPRETER.fullmatch(PurePath(command[0]).name.lower()):
        return ""
    for number, word in enumerate(command[1:], 1):
        if word == "-m":
            return "".join(command[number + 1 : number + 2])
        if word.startswith("-"):
            if word in ("-c", "-e", "-", "--eval") or (word[1] != "-" and word.endswith("c")):
                return ""
            continue
        return PurePath(word).name
    return ""


def _variable(text: str, environment: dict[str, str]) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise CommandError(f"--env {text}: expected NAME=VALUE or NAME")
    if not equals:
        if name not in environment:
            raise CommandError(f"--env {name}: not set in this environment", "use NAME=VALUE")
        value = environment[name]
    return {"name": name, "value": value}
