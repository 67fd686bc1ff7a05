"""The simulator's reference policies compared with production: a difference is a bug in one."""

from random import Random

from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.indexes import IndexSet
from onejob.planning.job.success_policy import matching_success_rule
from sim import workloads
from sim.checks import policies
from tests.planning.build import a_job, a_pod, an_indexed_job


def test_both_readings_of_failure_policies_agree() -> None:
    rng = Random(1)
    actions = set()
    for _ in range(300):
        policy = workloads._failure_policy(rng, per_index=True)
        job = a_job(podFailurePolicy=policy, podReplacementPolicy="Failed")
        disrupted = {"type": "DisruptionTarget", "status": rng.choice(("True", "False"))}
        code = rng.choice(workloads.EXIT_CODES)
        pod = a_pod("pod", "F", exit_code=code, status={"conditions": [disrupted]})
        action = policies.action_for(job.spec.pod_failure_policy, pod)
        assert action == match_failure_policy(job.spec.pod_failure_policy, pod).action, (
            policy,
            code,
        )
        actions.add(action)
    assert actions == {None, "Ignore", "Count", "FailIndex", "FailJob"}


def test_both_readings_of_success_policies_agree() -> None:
    rng = Random(2)
    met = 0
    for _ in range(300):
        completions = rng.randint(1, 8)
        done = IndexSet().with_indexes(rng.sample(range(completions), rng.randint(0, completions)))
        policy = {"rules": [workloads._success_rule(rng, completions)]}
        job = an_indexed_job(
            completions=completions, successPolicy=policy, status={"completedIndexes": str(done)}
        )
        rule = matching_success_rule(job.spec.success_policy, completions, done)
        assert policies.succeeds_early(job) == (rule is not None), (policy, done)
        if rule is not None:
            met += 1
            assert len(done) >= policies.fewest_successes(job)
    assert 50 < met < 250
