"""Users' manifests, and the error messages for mistakes."""

import io
import json
from pathlib import Path
from textwrap import dedent

import pytest

from onejob.cli.errors import CommandError
from onejob.cli.manifests.loading import InvalidManifests, Problem, read_manifests
from onejob.cli.run.plan import plan_run
from onejob.cli.yaml_text import yaml_of
from onejob.gates import FeatureGates
from tests.cli.build import NOON

GOOD = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          command: [date]
"""


def problems_of(folder: Path, text: str) -> list[str]:
    """Return the messages of `onejob run` about a file, without the file's own folder."""
    file = folder / "job.yaml"
    file.write_text(dedent(text))
    with pytest.raises(CommandError) as caught:
        plan_run(read_manifests([str(file)]), "default", FeatureGates(), NOON)
    return [line.replace(f"{folder}/", "") for line in caught.value.lines]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b\n  c: [d\n", "job.yaml: document 1, line 2: invalid YAML: mapping values"),
        ("a: 1\na: 2\n", 'job.yaml: document 1, line 2: key "a" already set in map'),
        ("- 1\n", "job.yaml: document 1, line 1: expected an object with apiVersion and kind"),
        ("kind: Job\n", "job.yaml: document 1, line 1: apiVersion: expected a string such as"),
        (
            "apiVersion: batch/v1beta1\nkind: CronJob\n",
            "job.yaml: document 1, line 1: apiVersion: CronJob is available as batch/v1, not",
        ),
        (
            "apiVersion: batch/v1\nkind: Jobs\n",
            "job.yaml: document 1, line 2: kind: unsupported kind batch/v1 Jobs, did you mean "
            "Job? (supported: ",
        ),
        (
            "# empty\n---\napiVersion: example.com/v1\nkind: Widget\n",
            "job.yaml: document 1, line 4: kind: unsupported kind example.com/v1 Widget",
        ),
        (
            GOOD.format(name="a") + "---\n" + GOOD.format(name="b").replace("spec:", "sepc:", 1),
            "job.yaml: document 2, line 18: sepc: unknown field, did you mean spec?",
        ),
        (
            GOOD.format(name="a").replace("spec:\n", "spec:\n  backofflimit: 3\n", 1),
            "job.yaml: document 1, line 6: spec.backofflimit: unknown field, did you mean "
            "backoffLimit?",
        ),
        (
            GOOD.format(name="a").replace("spec:\n", "spec:\n  backoffLimit: '3'\n", 1),
            'job.yaml: document 1, line 6: spec.backoffLimit: expected a whole number, found "3"',
        ),
        (
            GOOD.format(name="a").replace("[date]", "date"),
            "job.yaml: document 1, line 12: spec.template.spec.containers[0].command: expected a "
            'list, found "date"',
        ),
        (
            GOOD.format(name="y"),
            "job.yaml: document 1, line 4: metadata.name: expected text (put it in quotes), "
            "found true",
        ),
        (
            GOOD.format(name="a").replace("Never", "Always"),
            "job.yaml: document 1, line 8: spec.template.spec.restartPolicy: Required value",
        ),
        (
            GOOD.format(name="a").replace("          image: busybox\n", ""),
            "job.yaml: document 1, line 10: spec.template.spec.containers[0].image: Required",
        ),
        (
            GOOD.format(name="a").replace("  name: a\n", "  labels: {}\n"),
            "job.yaml: document 1, line 3: metadata.name: required",
        ),
        (
            "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: a}\n",
            "job.yaml: document 1, line 2: kind: onejob run does not create a "
            "ReplicationController",
        ),
        (
            GOOD.format(name="a").replace("spec:\n", "spec:\n  suspend: true\n", 1),
            "job.yaml: document 1, line 6: spec.suspend: a suspended Job would never finish",
        ),
        (
            GOOD.format(name="a").replace("spec:\n", "spec:\n  managedBy: a.b/c\n", 1),
            "job.yaml: document 1, line 6: spec.managedBy: onejob run does not run Jobs managed by",
        ),
        (
            GOOD.format(name="a").replace("spec:\n", "spec:\n  parallelism: 0\n", 1),
            "job.yaml: document 1, line 6: spec.parallelism: no Pod would start",
        ),
        (GOOD.format(name="a") + "---\n" + GOOD.format(name="a"), "duplicate object job/a"),
        ("---\n# nothing\n", "no objects in job.yaml"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", "job.yaml: no Job to run"),
    ],
)
def test_problem_is_reported_with_line_and_field(tmp_path: Path, text: str, expected: str) -> None:
    assert problems_of(tmp_path, text)[0].startswith(expected)


def test_where_its_gate_is_off_a_job_of_another_manager_is_run(tmp_path: Path) -> None:
    text = GOOD.format(name="a").replace("spec:\n", "spec:\n  managedBy: a.b/c\n", 1)
    (tmp_path / "job.yaml").write_text(text)
    manifests = read_manifests([str(tmp_path / "job.yaml")])
    plan = plan_run(manifests, "default", FeatureGates({"JobManagedBy": False}), NOON)
    assert [wanted.document["metadata"]["name"] for wanted in plan.objects] == ["a"]


def test_problems_of_all_documents_are_reported_together(tmp_path: Path) -> None:
    text = GOOD.format(name="a").replace("image", "imgae") + "---\n" + GOOD.format(name="B")
    first, second = problems_of(tmp_path, text)
    assert "document 1, line 11" in first
    assert "did you mean image?" in first
    assert "document 2, line 17: metadata.name: Invalid value" in second


def test_items_of_a_list_are_objects_with_lines_of_their_own(tmp_path: Path) -> None:
    text = """\
        apiVersion: v1
        kind: List
        items:
          - apiVersion: v1
            kind: ConfigMap
            metadata: {name: a}
          - apiVersion: v1
            kind: ConfigMap
            metadata: {name: b}
            daat: {}
        """
    (problem,) = problems_of(tmp_path, text)
    assert problem == ("job.yaml: document 1, line 10: daat: unknown field, did you mean data?")


def test_server_list_is_read_as_several_objects(tmp_path: Path) -> None:
    """Items of a JobList, as `kubectl get --raw` prints it, have no apiVersion and kind."""
    file = tmp_path / "jobs.json"
    named = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b"}}
    file.write_text(
        json.dumps(
            {
                "kind": "JobList",
                "apiVersion": "batch/v1",
                "metadata": {"resourceVersion": "7"},
                "items": [{"metadata": {"name": "a"}}, named],
            }
        )
    )
    found = read_manifests([str(file)])
    assert [(manifest.kind.kind, manifest.name) for manifest in found] == [
        ("Job", "a"),
        ("Job", "b"),
    ]
    assert found[0].document["apiVersion"] == "batch/v1"


def test_an_object_without_items_is_no_list(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "apiVersion: v1\nkind: AllowList\nspec: {}\n")
    assert "unsupported kind v1 AllowList" in problem


def test_problem_is_reported_once(tmp_path: Path) -> None:
    """A long name makes two labels of the Pods too long, which are one field to a reader."""
    problems = problems_of(tmp_path, GOOD.format(name="a" * 64))
    assert sum("spec.template.labels" in problem for problem in problems) == 1


def test_folders_files_and_stdin_are_read_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b.yaml").write_text(GOOD.format(name="two"))
    (tmp_path / "a.yml").write_text(GOOD.format(name="one"))
    (tmp_path / "readme.txt").write_text("not a manifest")
    stdin = io.TextIOWrapper(io.BytesIO(GOOD.format(name="three").encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    names = [manifest.name for manifest in read_manifests([str(tmp_path), "-"])]
    assert names == ["one", "two", "three"]


def test_reading_manifest_from_terminal_prints_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(GOOD.format(name="typed").encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert len(read_manifests(["-"])) == 1
    assert capsys.readouterr().err == ""
    stdin = io.TextIOWrapper(io.BytesIO(GOOD.format(name="typed").encode()))
    monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", stdin)
    assert len(read_manifests(["-"])) == 1
    assert capsys.readouterr().err == (
        "note: reading a manifest from the terminal; end it with Ctrl-D\n"
    )


def test_a_file_may_start_and_end_with_a_boundary(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("---\n" + GOOD.format(name="a") + "---\n")
    (manifest,) = read_manifests([str(file)])
    assert manifest.number == 1
    assert manifest.line_of("metadata.name") == 5


@pytest.mark.parametrize(
    ("source", "expected"),
    [("missing.yaml", "No such file"), ("folder", "no .yaml, .yml, .json files in this directory")],
)
def test_unreadable_file_is_named(tmp_path: Path, source: str, expected: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CommandError, match=expected):
        read_manifests([str(tmp_path / source)])


def test_binary_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="not a UTF-8 text file"):
        read_manifests([str(tmp_path / "x")])


@pytest.mark.parametrize("text", ["y", "No", "1e3", "0o17", "007", "a\nb", "", " x ", "2026-01-01"])
def test_texts_survive_a_way_through_yaml(tmp_path: Path, text: str) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"key": text},
    }
    file = tmp_path / "x.yaml"
    file.write_text(yaml_of(document))
    (manifest,) = read_manifests([str(file)])
    assert manifest.document == document


def test_run_creates_prerequisites_before_jobs(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: own}\n"
    file.write_text(GOOD.format(name="a") + "---\n" + secret)
    plan = plan_run(read_manifests([str(file)]), "batch", FeatureGates(), NOON)
    created = [(item.resource, item.document["metadata"]["name"]) for item in plan.objects]
    assert created == [
        ("namespaces", "own"),
        ("namespaces", "batch"),
        ("secrets", "s"),
        ("jobs.batch", "a"),
    ]


def test_run_skips_cronjob_with_notice(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(GOOD.format(name="a") + "---\n" + cronjob("* * * * *") + "---\n" + POD)
    plan = plan_run(read_manifests([str(file)]), "default", FeatureGates(), NOON)
    assert [item.resource for item in plan.objects] == ["jobs.batch"]
    assert plan.notices == (
        "cronjob/tick is checked but not run: schedules require a server (use onejob serve, "
        f"then onejob apply -f {file})",
        "pod/p is checked but not run: it is not a Job (use onejob serve, then onejob apply -f "
        f"{file})",
    )


@pytest.mark.parametrize("check_only", [True, False])
def test_skipped_manifests_are_validated(tmp_path: Path, check_only: bool) -> None:
    file = tmp_path / "x.yaml"
    pod = POD.replace("restartPolicy: Never", "restartPolicy: Sometimes")
    parts = [GOOD.format(name="a"), cronjob("every day"), pod]
    file.write_text("---\n".join(parts))
    with pytest.raises(InvalidManifests) as caught:
        plan_run(
            read_manifests([str(file)]), "default", FeatureGates(), NOON, check_only=check_only
        )
    schedule, policy = caught.value.lines
    assert "document 2" in schedule
    assert ": spec.schedule: " in schedule
    assert ": spec.restartPolicy: " in policy


def test_manifests_without_a_job_can_be_checked(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(cronjob("0 3 * * *"))
    plan = plan_run(read_manifests([str(file)]), "default", FeatureGates(), NOON, check_only=True)
    assert (plan.objects, plan.jobs, len(plan.notices)) == ((), (), 1)


POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
    "spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}\n"
)


def cronjob(schedule: str) -> str:
    template = "{spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}"
    return (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tick}\nspec:\n"
        f"  schedule: '{schedule}'\n  jobTemplate: {{spec: {{template: {template}}}}}\n"
    )


def test_bad_manifests_keep_every_line() -> None:
    first, second = Problem("x.yaml", 1, 3, "spec", "bad"), Problem("-", 2, 0, "", "worse")
    lines = ["x.yaml: document 1, line 3: spec: bad", "<stdin>: document 2: worse"]
    assert InvalidManifests([first, second]).lines == lines


def test_a_kind_that_is_only_stored_is_checked_and_left_out(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p}\n"
    file.write_text(GOOD.format(name="a") + "---\n" + policy)
    plan = plan_run(read_manifests([str(file)]), "default", FeatureGates(), NOON)
    assert plan.notices == (
        "networkpolicy/p is checked but not created: it has no effect in a run",
    )
    assert [item.resource for item in plan.objects] == ["jobs.batch"]
