"""`onejob validate`: problems with file and line, without a server."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from build_schema import EXTENSION_FIELDS

from onejob.cli.manifests.loading import read_manifests
from onejob.cli.manifests.portability import (
    JOB_EXTENSIONS,
    POD_EXTENSIONS,
    portability_problems,
)
from tests.cli.command_line import EXAMPLES, CommandLine

GOOD = """\
apiVersion: batch/v1
kind: Job
metadata: {name: good}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [/bin/true]}]
"""


def test_examples_are_good(onejob: CommandLine) -> None:
    done = onejob.run("validate", str(EXAMPLES))
    assert (done.returncode, done.stderr) == (0, "")
    assert "no problems found" in done.stdout


def test_validate_reports_all_problems_of_all_documents(
    onejob: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        GOOD
        + "---\nkind: Job\n---\n"
        + GOOD.replace("Never", "Sometimes").replace("good", "Bad_Name")
        + "---\na: [\n"
    )
    done = onejob.run("validate", str(file))
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    # An invalid name is also invalid for Pods.
    assert len(lines) == 5
    assert all(line.startswith(f"error: {file}: document ") for line in lines)
    assert any("document 2, line 11: apiVersion: " in line for line in lines)
    assert any("document 3, line 15: metadata.name: " in line for line in lines)
    assert any("document 3, line 20: spec.template.spec.restartPolicy: " in line for line in lines)
    assert any("document 4" in line and "invalid YAML" in line for line in lines)


def test_json_names_file_line_and_field(onejob: CommandLine) -> None:
    text = GOOD.replace("suspend", "supsend")
    done = onejob.run("validate", "-o", "json", "-", stdin=text)
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert found == {
        "valid": False,
        "problems": [
            {
                "source": "-",
                "document": 1,
                "line": 5,
                "field": "spec.supsend",
                "message": "unknown field, did you mean suspend?",
            }
        ],
    }
    done = onejob.run("validate", "-o", "json", "-", stdin=GOOD)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"valid": True, "problems": []})


@pytest.mark.parametrize("words", [(), ("nowhere.yaml",), ("--feature-gates", "X=1", "x.yaml")])
def test_bad_usage_is_one_line(onejob: CommandLine, words: tuple[str, ...]) -> None:
    done = onejob.run("validate", *words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


EXTENDED = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: c}
spec:
  schedule: "@daily"
  jobTemplate:
    metadata: {annotations: {onejob.dev/oom-memory-factor: "2"}}
    spec:
      backoffSeconds: 3
      template:
        spec:
          restartPolicy: Never
          volumes: [{name: v, hostPath: {path: /data}}]
          containers:
          - name: c
            image: host
            workingDir: /home/me
            command: [/bin/sh, ./train.py, /usr/bin/env, word, -x/y]
            args: [data.csv, missing.csv]
"""


def test_validate_names_unsupported_fields_of_clusters(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(EXTENDED)
    (manifest,) = read_manifests([str(file)])
    here = {"/home/me", "/home/me/./train.py", "/home/me/data.csv", "/bin/sh", "/home/me/word"}
    problems = portability_problems(manifest, here.__contains__)
    pod = "spec.jobTemplate.spec.template.spec"
    assert [(problem.field, problem.line) for problem in problems] == [
        ("spec.jobTemplate.metadata.annotations[onejob.dev/oom-memory-factor]", 7),
        ("spec.jobTemplate.spec.backoffSeconds", 9),
        (f"{pod}.containers[0].image", 16),
        (f"{pod}.containers[0].workingDir", 17),
        (f"{pod}.containers[0].command[1]", 18),
        (f"{pod}.containers[0].args[0]", 19),
    ]


@pytest.mark.parametrize(
    ("type_", "table"),
    [
        ("io.k8s.api.batch.v1.JobSpec", JOB_EXTENSIONS),
        ("io.k8s.api.core.v1.PodSpec", POD_EXTENSIONS),
    ],
)
def test_every_field_of_our_own_is_in_the_table_of_portability(
    type_: str, table: Mapping[str, str | None]
) -> None:
    assert table.keys() == EXTENSION_FIELDS[type_].keys()


@pytest.mark.parametrize("annotation", ["onejob.dev/backoff-seconds", None])
def test_validate_names_the_annotation_of_a_field_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, annotation: str | None
) -> None:
    table = {"backoffSeconds": annotation}
    monkeypatch.setattr("onejob.cli.manifests.portability.JOB_EXTENSIONS", table)
    file = tmp_path / "j.yaml"
    file.write_text(GOOD.replace("  suspend: true\n", "  backoffSeconds: 3\n"))
    (manifest,) = read_manifests([str(file)])
    (problem,) = portability_problems(manifest, lambda path: False)
    dropped = "this field exists only in onejob; a Kubernetes API server drops it"
    hint = f" (use the annotation {annotation} and `onejob controller`)" if annotation else ""
    assert (problem.field, problem.message) == ("spec.backoffSeconds", dropped + hint)


def test_annotations_that_a_cluster_only_keeps_are_named(onejob: CommandLine) -> None:
    marks = (
        "{name: good, labels: {onejob.dev/queue: gpu, app: x}, annotations: "
        '{onejob.dev/backoff-seconds: "1", onejob.dev/params: x, kept: "yes"}}'
    )
    text = GOOD.replace("{name: good}", marks)
    text = text.replace("  template:\n", "  template:\n    metadata: {annotations: {%s: '9'}}\n")
    text = text.replace("%s", "onejob.dev/pending-deadline-seconds")
    done = onejob.run("validate", "--for", "kubernetes", "-o", "json", "-", stdin=text)
    assert [problem["field"] for problem in json.loads(done.stdout)["problems"]] == [
        "metadata.annotations[onejob.dev/backoff-seconds]",
        "metadata.labels[onejob.dev/queue]",
        "spec.template.metadata.annotations[onejob.dev/pending-deadline-seconds]",
    ]
    managed = text.replace("suspend: true", "managedBy: onejob.dev/job-controller")
    done = onejob.run("validate", "--for", "kubernetes", "-o", "json", "-", stdin=managed)
    assert len(json.loads(done.stdout)["problems"]) == 2


def test_a_plain_job_carries_over(onejob: CommandLine) -> None:
    done = onejob.run("validate", "--for", "kubernetes", "-", stdin=GOOD)
    assert (done.returncode, done.stderr) == (0, "")


def test_validate_reports_names_and_volumes_beside_type_errors(onejob: CommandLine) -> None:
    text = (
        GOOD.replace("name: good", "name: Bad_Name")
        .replace("suspend: true", 'completions: "3"')
        .replace("image: busybox", "image: busybox, volumeMounts: [{name: v, mountPath: /v}]")
        .replace("[/bin/true]", "/bin/true")
    )
    done = onejob.run("validate", "-o", "json", "-", stdin=text)
    assert [problem["field"] for problem in json.loads(done.stdout)["problems"]] == [
        "metadata.name",
        "spec.completions",
        "spec.template.spec.containers[0].command",
        "spec.template.spec.containers[0].volumeMounts[0].name",
    ]


STORED = """\
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: reads}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [/bin/true]}]
      volumes:
      - {name: a, persistentVolumeClaim: {claimName: data}}
      - {name: b, hostPath: {path: /data}}
      - {name: c, nfs: {server: example.com, path: /data}}
"""


def test_validate_names_kinds_and_volumes_without_effect(onejob: CommandLine) -> None:
    done = onejob.run("validate", "-", stdin=STORED)
    assert done.returncode == 0, done.stderr
    service, volume = done.stderr.splitlines()
    assert "document 1: Service is stored, but has no effect here" in service
    assert "line 22: spec.template.spec.volumes[2].nfs: onejob provides no such vol" in volume
    done = onejob.run("validate", "--for", "kubernetes", "-", stdin=STORED)
    assert done.returncode == 0, done.stderr
    (path,) = done.stderr.splitlines()
    assert path.startswith(
        "warning: <stdin>: document 3, line 21: spec.template.spec.volumes[1].host"
    )
