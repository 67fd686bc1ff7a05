"""Messages of the Pod Security checks.

`tests/differential` compares more of them with the responses of a real Kubernetes.
"""

from typing import Any

import pytest

from onejob.planning.pod_security.evaluation import (
    existing_warnings,
    explained,
    may_reject_running_pods,
    violations,
)
from onejob.planning.pod_security.labels import LevelVersion, Policy, read_policy

_P = "pod-security.kubernetes.io/"
_BASELINE = LevelVersion("baseline")
_RESTRICTED = LevelVersion("restricted")


def _pod(*, context: Any = None, shared: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "containers": [{"name": "c", "securityContext": context or {}}],
        "securityContext": shared or {},
        **spec,
    }


@pytest.mark.parametrize(
    ("level", "spec", "said"),
    [
        pytest.param(_BASELINE, _pod(), "", id="nothing"),
        pytest.param(
            _BASELINE,
            _pod(context={"procMount": "Unmasked"}),
            'procMount (container "c" must not set securityContext.procMount to "Unmasked")',
            id="procMount",
        ),
        pytest.param(
            _BASELINE,
            _pod(context={"procMount": "Unmasked"}, hostUsers=False),
            "",
            id="procMount in a user namespace",
        ),
        pytest.param(
            LevelVersion("baseline", 34),
            _pod(context={"procMount": "Unmasked"}, hostUsers=False),
            'procMount (container "c" must not set securityContext.procMount to "Unmasked")',
            id="procMount in a user namespace, before it counted",
        ),
        pytest.param(
            _RESTRICTED, _pod(os={"name": "windows"}),
            'runAsNonRoot != true (pod or container "c" must set '
            "securityContext.runAsNonRoot=true)",
            id="windows",
        ),
        pytest.param(
            _RESTRICTED,
            _pod(os={"name": "windows"}, hostUsers=False),
            "",
            id="windows with users of its own",
        ),
        pytest.param(
            _BASELINE,
            _pod(
                shared={"windowsOptions": {"hostProcess": True}},
                context={"windowsOptions": {"hostProcess": True}},
            ),
            'hostProcess (pod and container "c" must not set '
            "securityContext.windowsOptions.hostProcess=true)",
            id="hostProcess",
        ),
        pytest.param(
            _RESTRICTED,
            _pod(
                context={
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "procMount": "Unmasked",
                },
                shared={"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}},
                hostUsers=False,
            ),
            'procMount (container "c" must not set securityContext.procMount to "Unmasked")',
            id="procMount is never free at restricted",
        ),
        pytest.param(
            _BASELINE,
            _pod(ephemeralContainers=[{"name": "e", "securityContext": {"privileged": True}}]),
            'privileged (container "e" must not set securityContext.privileged=true)',
            id="ephemeral containers count",
        ),
    ],
)  # fmt: skip
def test_pod_is_evaluated_by_namespace_level(
    level: LevelVersion, spec: dict[str, Any], said: str
) -> None:
    assert explained(violations(level, {}, spec)) == said


@pytest.mark.parametrize(
    ("labels", "policy", "wrong"),
    [
        ({}, Policy(), 0),
        (
            {_P + "enforce": "baseline"},
            Policy(enforce=LevelVersion("baseline"), warn=LevelVersion("baseline")),
            0,
        ),
        (
            {_P + "enforce": "baseline", _P + "enforce-version": "v1.30"},
            Policy(enforce=LevelVersion("baseline", 30), warn=LevelVersion("baseline", 30)),
            0,
        ),
        (
            {_P + "enforce": "restricted", _P + "warn": "privileged"},
            Policy(enforce=LevelVersion("restricted")),
            0,
        ),
        ({_P + "enforce": "most"}, Policy(enforce=LevelVersion("restricted")), 1),
        ({_P + "warn": "most", _P + "audit": "most"}, Policy(), 2),
        ({_P + "audit-version": "v1.01"}, Policy(), 1),
    ],
)
def test_labels_stand_for_a_policy(labels: dict[str, str], policy: Policy, wrong: int) -> None:
    found, errors = read_policy(labels)
    assert (found, len(errors)) == (policy, wrong)


@pytest.mark.parametrize(
    ("old", "new", "looks"),
    [
        (_BASELINE, _BASELINE, False),
        (_BASELINE, _RESTRICTED, True),
        (_RESTRICTED, _BASELINE, False),
        (_RESTRICTED, LevelVersion("baseline", 20), True),
        (_BASELINE, LevelVersion("privileged", 20), False),
    ],
)
def test_pods_are_looked_at_when_a_level_may_refuse_more(
    old: LevelVersion, new: LevelVersion, looks: bool
) -> None:
    assert may_reject_running_pods(Policy(enforce=new), Policy(enforce=old)) is looks


def test_a_namespace_with_many_pods_is_looked_at_in_part() -> None:
    bad = _pod(hostPID=True)
    assert existing_warnings("n", _BASELINE, [("b", {}, bad), ("a", {}, bad)], 5) == [
        "new PodSecurity enforce level only checked against the first 2 of 5 existing pods",
        'existing pods in namespace "n" violate the new PodSecurity enforce level '
        '"baseline:latest"',
        "a (and 1 other pod): host namespaces",
    ]
