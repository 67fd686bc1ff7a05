"""Where onejob differs from Kubernetes on purpose, with a reason each.

Everything else that the scenarios show is the same, or a bug.
"""

from collections.abc import Sequence
from typing import Final

from tests.differential.comparing import Known

KNOWN: Final[Sequence[Known]] = (
    Known(
        "*",
        r"/\d+:[^/]*/value/events/(Normal|Warning) Job(Start|Finish) ",
        "onejob also records when a Job starts and ends (feature gate JobLifecycleEvents)",
    ),
    Known(
        "cron.*",
        r"/\d+:[^/]*/value/events/Warning UnexpectedJob ",
        "recorded at every sync of the CronJob, and how many there are is not promised",
    ),
    Known(
        "changing.patches_that_do_not_apply",
        r"/[1237]:PATCH jobs/j/answer/(message|details)",
        "onejob says what is wrong with the patch, or which types it takes; Kubernetes does not",
    ),
    Known(
        "changing.patches_that_do_not_apply",
        r"/[45]:PATCH jobs/j/answer/message",
        "Kubernetes names types of its Go code",
    ),
    Known(
        "changing.patches_that_do_not_apply",
        r"/6:PATCH jobs/j/",
        "an unknown $patch is the client's error: 400, where Kubernetes answers 500",
    ),
    Known(
        "create.another_kind_than_the_path_says",
        r"/[01]:POST jobs/answer/message",
        "Kubernetes names types and files of its Go code",
    ),
    Known(
        "create.bodies_that_are_no_documents",
        r"/[012]:POST jobs/answer/message",
        "Kubernetes names types of its Go code",
    ),
    Known(
        "deleting.preconditions_that_do_not_hold",
        r"/[14]:DELETE jobs/(j|absent)/warnings",
        "where nothing is deleted, onejob does not warn of what would be left behind",
    ),
    Known(
        "managed.its_manager_reports",
        r"/9:outcome/value/jobs/j/status/active",
        "onejob keeps a zero that was written; Kubernetes drops it",
    ),
    Known(
        "watching.a_pod_that_cannot_be_bound_twice",
        r"/[12]:POST pods/j-\*/binding/(answer/)?(code|reason)",
        "a bad Binding is the client's error: 400, where Kubernetes answers 500",
    ),
    Known(
        "watching.lists_that_are_refused",
        r"/[04]:GET jobs/answer/message",
        "Kubernetes names what its Go code stumbled over",
    ),
    Known(
        "watching.watches_that_are_refused",
        r"/0:watch with {'resourceVersion': 'much'}/value/0/",
        "a bad resourceVersion is the client's error: 400, where Kubernetes answers 500",
    ),
)
