"""Labels of metrics are checked by mypy.

`warn_unused_ignores` makes each `type: ignore` below an assertion: `make types` fails as soon as
mypy accepts the call.
"""

from typing import TYPE_CHECKING

import pytest

from onejob.metrics import JobSync, Metrics

if TYPE_CHECKING:

    def calls_that_mypy_rejects(metrics: Metrics, mode: str) -> None:
        finished, syncs = metrics.jobs_finished, metrics.job_syncs
        finished.inc(completion_mode="Indexed", result="failed")  # type: ignore[call-arg]
        finished.inc(completion_mode="Indexed", result="failed", raeson="")  # type: ignore[call-arg]
        finished.inc(completion_mode="Indexed", result="fail", reason="")  # type: ignore[arg-type]
        finished.inc(completion_mode=mode, result="failed", reason="")  # type: ignore[arg-type]
        finished.inc("Indexed", "failed", "")  # type: ignore[call-arg]
        finished.add("Indexed", result="failed", reason="")  # type: ignore[call-arg, arg-type]
        finished.set(1, completion_mode="Indexed")  # type: ignore[attr-defined]
        metrics.store_commits.inc(result="failed")  # type: ignore[call-arg]
        metrics.cronjob_active.set(1, namespace="a")  # type: ignore[call-arg]
        metrics.cronjob_skew.observe(1, result="failed")  # type: ignore[call-arg]
        syncs.read(lambda: 1)  # type: ignore[misc]
        metrics.store_commits.read_each(
            lambda: {JobSync(completion_mode="Indexed", result="error", action="tracking"): 1}  # type: ignore[dict-item]
        )
        metrics.jobs_finishd.inc()  # type: ignore[attr-defined]


def test_order_of_keyword_labels_is_irrelevant() -> None:
    metrics = Metrics()
    metrics.pods_finished.inc(completion_mode="Indexed", result="failed")
    metrics.pods_finished.inc(result="failed", completion_mode="Indexed")
    assert metrics.pods_finished.value(completion_mode="Indexed", result="failed") == 2


def test_missing_label_raises() -> None:
    with pytest.raises(KeyError):
        Metrics().pods_finished.inc(result="failed")  # type: ignore[call-arg]
