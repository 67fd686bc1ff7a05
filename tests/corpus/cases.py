"""Jobs of the corpus: every policy, mode, failure and edge that ends the same way at every turn.

`{marks}` in a script is a folder of its own for each case and engine, for Pods that behave
differently the second time.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests import build

Document = dict[str, Any]
#: Substituted by the engine.
MARKS = "{marks}"
IMAGE = "{image}"
INDEX = "$JOB_COMPLETION_INDEX"
#: Ends with 143 on SIGTERM, also as the first process of a container, which ignores it otherwise.
_FOREVER = "trap 'exit 143' TERM; sleep 600 & wait"


def _unless(comparison: str) -> str:
    """Return a script that succeeds for the indexes with this property, and runs on for others."""
    return f"test {INDEX} {comparison} || {{ {_FOREVER}; }}"


class Case(NamedTuple):
    job: Document
    #: Run by `make test`, too.
    quick: bool = False
    #: ConfigMaps and Secrets that exist before.
    others: tuple[Document, ...] = ()


def cases() -> Mapping[str, Case]:
    return dict(_CASES)


_CASES: dict[str, Case] = {}


def _job(
    name: str,
    script: str = "true",
    *,
    quick: bool = False,
    others: tuple[Document, ...] = (),
    pod: Document | None = None,
    container: Document | None = None,
    more: tuple[Document, ...] = (),
    metadata: Document | None = None,
    **spec: Any,
) -> None:
    """Add a Job; `pod` and `container` are fields of them, `more` further containers."""
    assert name not in _CASES, name
    main = _container("main", script, **(container or {}))
    fields: Document = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **(pod or {})}
    if "{marks}" in script:
        fields["volumes"] = [{"name": "marks", "hostPath": {"path": MARKS}}]
        main["volumeMounts"] = [{"name": "marks", "mountPath": MARKS}]
    body = {"containers": [main, *more], **fields}
    template: Document = {"spec": body}
    if metadata:
        template["metadata"] = metadata
    _CASES[name] = Case(build.a_job(name, template=template, **spec), quick, others)


def _container(name: str, script: str, **fields: Any) -> Document:
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        **fields,
    }


def _rules(*rules: Document) -> Document:
    return {"podFailurePolicy": {"rules": list(rules)}}


def _codes(action: str, operator: str, *values: int, **fields: Any) -> Document:
    codes = {"operator": operator, "values": list(values), **fields}
    return {"action": action, "onExitCodes": codes}


def _succeeds(*rules: Document) -> Document:
    return {"successPolicy": {"rules": list(rules)}}


_INDEXED: Document = {"completionMode": "Indexed"}
_ONCE: Document = {"backoffLimit": 0}
_ON_INDEX_1 = f"test {INDEX} != 1"
_SECOND_TIME = "mkdir {marks}/once-${JOB_COMPLETION_INDEX:-0} 2> /dev/null && exit 3; true"

# --- counting
_job("one", quick=True)
_job("three-at-once", completions=3, parallelism=3)
_job("three-in-turn", completions=3, parallelism=1)
_job("more-parallelism-than-completions", completions=2, parallelism=5)
_job("no-completions", completions=0)
_job("work-queue-of-one", parallelism=1)
_job("work-queue", "sleep 1", parallelism=3)
_job("many", completions=40, parallelism=10)
_job("explicit-mode", completions=2, completionMode="NonIndexed")
_job("sleeping", "sleep 2", completions=2, parallelism=2)
_job("suspended", suspend=True, quick=True)
_job("kept-after-the-end", ttlSecondsAfterFinished=86400)

# --- failures
_job("fails", "exit 3", **_ONCE, quick=True)
_job("fails-with-255", "exit 255", **_ONCE)
# In a shell of its own: the first process of a container cannot kill itself.
_job("killed-by-sigkill", "sh -c 'kill -9 $$$$'; exit $?", **_ONCE)
_job("killed-by-sigterm", "sh -c 'kill -TERM $$$$'; exit $?", **_ONCE)
_job("killed-by-segfault", "sh -c 'kill -SEGV $$$$'; exit $?", **_ONCE)
_job("fails-twice", "exit 3", backoffLimit=1)
_job("succeeds-when-retried", _SECOND_TIME, quick=True)
_job("succeeds-when-all-are-retried", _SECOND_TIME, completions=2, parallelism=1)
_job("program-is-missing", container={"command": ["/no/such/program"]}, **_ONCE)
_job("one-of-two-containers-fails", more=(_container("other", "exit 4"),), **_ONCE)
_job("two-containers", more=(_container("other", "true"),))
_job("deadline-of-the-job", _FOREVER, activeDeadlineSeconds=2, quick=True)
_job(
    "deadline-of-the-job-with-many", _FOREVER, activeDeadlineSeconds=2, completions=3, parallelism=3
)
_job("deadline-of-the-pod", _FOREVER, pod={"activeDeadlineSeconds": 8}, **_ONCE)
_job("deadline-that-is-met", activeDeadlineSeconds=600)

# --- restarts in place
_job("restarts", _SECOND_TIME, pod={"restartPolicy": "OnFailure"}, quick=True)
_job("restarts-too-often", "exit 3", pod={"restartPolicy": "OnFailure"}, **_ONCE)
_job("restarts-with-indexes", _SECOND_TIME, pod={"restartPolicy": "OnFailure"}, **_INDEXED,
     completions=2, parallelism=2)  # fmt: skip

# --- init containers
_job("init", pod={"initContainers": [_container("first", "true"), _container("second", "true")]})
_job("init-fails", pod={"initContainers": [_container("first", "exit 5")]}, **_ONCE)
_job("sidecar", "sleep 1", pod={"initContainers": [
    _container("side", _FOREVER, restartPolicy="Always")]})  # fmt: skip

# --- indexes
_job("indexes", completions=3, parallelism=3, **_INDEXED, quick=True)
_job("indexes-in-turn", completions=3, parallelism=1, **_INDEXED)
_job("no-indexes", completions=0, **_INDEXED)
_job("an-index-fails", _ON_INDEX_1, completions=2, parallelism=1, **_INDEXED, **_ONCE)
_job("index-in-the-environment", f"test {INDEX} -lt 3", completions=3, parallelism=3, **_INDEXED)
_job("many-indexes", completions=30, parallelism=10, **_INDEXED)
_job("limit-per-index", _ON_INDEX_1, completions=4, parallelism=4, backoffLimitPerIndex=0,
     **_INDEXED, quick=True)  # fmt: skip
_job("limit-per-index-unused", completions=3, parallelism=3, backoffLimitPerIndex=0, **_INDEXED)
_job("limit-per-index-all-fail", "exit 1", completions=3, parallelism=3, backoffLimitPerIndex=0,
     **_INDEXED)  # fmt: skip
_job(
    "retry-per-index",
    _SECOND_TIME,
    completions=2,
    parallelism=2,
    backoffLimitPerIndex=1,
    **_INDEXED,
)
_job("too-many-failed-indexes", "exit 1", completions=4, parallelism=1, backoffLimitPerIndex=0,
     maxFailedIndexes=1, **_INDEXED)  # fmt: skip
_job("few-enough-failed-indexes", _ON_INDEX_1, completions=3, parallelism=3, backoffLimitPerIndex=0,
     maxFailedIndexes=1, **_INDEXED)  # fmt: skip

# --- failure policies
_job("fail-job", "exit 42", **_rules(_codes("FailJob", "In", 42)), quick=True)
_job("fail-job-unless", "exit 42", **_rules(_codes("FailJob", "NotIn", 1, 2)))
_job("fail-job-with-others", f"test {INDEX} = 0 && sleep 1 && exit 42; {_FOREVER}", completions=3,
     parallelism=3, **_INDEXED, **_rules(_codes("FailJob", "In", 42)))  # fmt: skip
_job("ignored-failure", _SECOND_TIME, **_ONCE, **_rules(_codes("Ignore", "In", 3)), quick=True)
_job("counted-failure", "exit 7", **_ONCE, **_rules(_codes("Count", "In", 7)))
_job("first-rule-wins", "exit 7", **_ONCE,
     **_rules(_codes("Count", "In", 7), _codes("FailJob", "In", 7)))  # fmt: skip
_job("no-rule-matches", "exit 9", **_ONCE, **_rules(_codes("FailJob", "In", 7)))
_job("rule-of-another-container", "exit 7", more=(_container("other", "true"),), **_ONCE,
     **_rules(_codes("FailJob", "In", 7, containerName="other")))  # fmt: skip
_job("rule-of-this-container", "exit 7", more=(_container("other", "true"),),
     **_rules(_codes("FailJob", "In", 7, containerName="main")))  # fmt: skip
_job("rule-on-conditions", "exit 7", **_ONCE, **_rules(
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}))  # fmt: skip
_job("fail-index", f"test {INDEX} = 1 && exit 42; true", completions=3, parallelism=3,
     backoffLimitPerIndex=5, **_INDEXED, **_rules(_codes("FailIndex", "In", 42)))  # fmt: skip

# --- success policies
_job("enough-indexes", _unless("= 0"), completions=3, parallelism=3, **_INDEXED,
     **_succeeds({"succeededIndexes": "0"}), quick=True)  # fmt: skip
_job("enough-successes", _unless("-lt 2"),
     completions=4, parallelism=4, **_INDEXED,
     **_succeeds({"succeededCount": 2}))  # fmt: skip
_job("enough-of-some-indexes", _unless("= 2"), completions=4, parallelism=4,
     **_INDEXED, **_succeeds({"succeededIndexes": "1-3", "succeededCount": 1}))  # fmt: skip
_job("second-success-rule", _unless("= 1"),
     completions=3, parallelism=3, **_INDEXED,
     **_succeeds({"succeededIndexes": "0"}, {"succeededIndexes": "1"}))  # fmt: skip

# --- replacement
_job("replaced-when-failed", _SECOND_TIME, podReplacementPolicy="Failed")
_job("replacement-and-deadline", _FOREVER, podReplacementPolicy="Failed", activeDeadlineSeconds=2)

# --- containers
_SETTINGS: tuple[Document, ...] = (
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"A": "x"}},
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "secrets"},
        "stringData": {"B": "y"},
    },
)
_job("settings", 'test "$A$B" = xy', others=_SETTINGS, container={"envFrom": [
    {"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "secrets"}}]})  # fmt: skip
_job("settings-as-files", "test $(cat /settings/A) = x", others=_SETTINGS,
     pod={"volumes": [{"name": "v", "configMap": {"name": "settings"}}]},
     container={"volumeMounts": [{"name": "v", "mountPath": "/settings"}]})  # fmt: skip
_job("optional-settings", 'test -z "$A"', container={"envFrom": [
    {"configMapRef": {"name": "absent", "optional": True}}]})  # fmt: skip
_job("downward-api", 'test "$NAME" = "$LABEL"', container={"env": [
    {"name": "NAME", "value": "downward-api"},
    {"name": "LABEL", "valueFrom": {"fieldRef": {
        "fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}}}]})  # fmt: skip
_job("termination-message", "printf failed > /dev/termination-log; exit 3", **_ONCE, quick=True)
_job("message-of-a-success", "printf 42 > /dev/termination-log")
_job("message-from-the-log", "echo the reason; exit 3", **_ONCE,
     container={"terminationMessagePolicy": "FallbackToLogsOnError"})  # fmt: skip
_job("requests", container={"resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}})
_job("expanded-arguments", container={"command": ["sh", "-c", "test $(GREETING) = hello"],
                                      "env": [{"name": "GREETING", "value": "hello"}]})  # fmt: skip
_job("working-directory", 'test "$PWD" = /tmp', container={"workingDir": "/tmp"})
_job("shared-volume", "while ! test -e /shared/done; do sleep 0.1; done",
     more=(_container("other", "touch /shared/done",
                      volumeMounts=[{"name": "v", "mountPath": "/shared"}]),),
     pod={"volumes": [{"name": "v", "emptyDir": {}}]},
     container={"volumeMounts": [{"name": "v", "mountPath": "/shared"}]})  # fmt: skip
_job("post-start", "sleep 1; test -e /shared/hook",
     pod={"volumes": [{"name": "v", "emptyDir": {}}]},
     container={"volumeMounts": [{"name": "v", "mountPath": "/shared"}],
                "lifecycle": {"postStart": {"exec": {"command": ["touch", "/shared/hook"]}}}},
     )  # fmt: skip

# --- rejected
_job("invalid-parallelism", parallelism=-1, quick=True)
_job("index-without-completions", completionMode="Indexed")
_job("invalid-policy", pod={"restartPolicy": "OnFailure"}, **_rules(_codes("FailJob", "In", 1)))
_job("invalid-limit-per-index", backoffLimitPerIndex=1)
