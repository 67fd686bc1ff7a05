"""Intended differences between onejob and Kubernetes, with a reason each.

Any other difference that the scenarios show is a bug.
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
        "objects.an_event_of_ones_own",
        r"/0:POST events/answer/(eventTime|firstTimestamp|lastTimestamp|reporting\w+|source)$",
        "onejob leaves out fields without a value; Kubernetes always shows these of an Event",
    ),
    Known(
        "objects.nodes",
        r"/[02]:\w+ nodes(/phantom)?/answer/status/(daemonEndpoints|nodeInfo)$",
        "onejob leaves out fields without a value; Kubernetes always shows these of a Node",
    ),
    Known(
        "objects.bad_pods",
        r"/16:POST pods/answer/",
        "onejob allows the user and group IDs that Linux has, up to 2**32 - 1",
    ),
    Known(
        "objects.bad_pods",
        r"/17:POST pods/answer/",
        "the supported values are the same, in another order",
    ),
    Known(
        "objects.discovery_of_batch",
        r"/2:resources/value/jobs/(history|outputs|pods|progress)$",
        "onejob also serves the Pods of a Job and their records",
    ),
    Known(
        "objects.metadata_that_is_refused",
        r"/0:POST configmaps/answer/reason",
        "onejob gives each error a reason",
    ),
    Known(
        "objects.metadata_that_is_refused",
        r"/5:generation/value",
        "a generation is the server's to count; Kubernetes keeps what is given to some kinds",
    ),
    Known(
        "objects.pods_by_themselves",
        r"/0:POST pods/answer/spec/serviceAccount(Name)?$",
        "onejob names the account of a Pod, as an admission plugin does that is off here",
    ),
    Known(
        "objects.what_of_a_pod_may_change",
        r"/\d:PATCH pods/p/answer/(message|details/causes/0/message)$",
        "onejob says in its own words which fields would change",
    ),
    *(
        Known(
            f"pod_security.{name}",
            r"/\d+:POST pods/warnings$",
            "onejob warns of what the process runtime does not enforce",
        )
        for name in ("baseline", "restricted_level", "older_versions", "old_annotations")
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
    Known(
        "conversion.conversions_that_fail",
        r"/\d+:old review/value/1$",
        "Kubernetes names types of its Go code",
    ),
    Known(
        "webhooks.broken_responses",
        r"/(15|17|19|20|24):POST configmaps/answer/(message|details/causes/0/message)$",
        "Kubernetes names types and files of its Go code, or what its YAML parser stumbled over",
    ),
    Known(
        "webhooks.broken_responses",
        r"/27:POST configmaps/answer/(message|details/causes/0/message)$",
        "onejob follows no redirects of webhooks: they could lead to any address",
    ),
    Known(
        "webhooks.patches_that_do_not_apply",
        r"/[678]:POST configmaps/answer/(message|details/causes/0/message)$",
        "Kubernetes names types of its Go code",
    ),
    Known(
        "webhooks.patches_that_do_not_apply",
        r"/(9|10|11|13|16|17|20):POST configmaps/answer/(message|details/causes/0/message)$",
        "onejob names the webhook whose patch does not apply, and says why in its own words",
    ),
    Known(
        "webhooks.a_patch_that_does_not_apply_is_not_ignored",
        r"/1:POST configmaps/answer/(message|details/causes/0/message)$",
        "onejob names the webhook whose patch does not apply, and says why in its own words",
    ),
    Known(
        "webhooks.patches_that_do_not_apply",
        r"/12:POST configmaps/(answer|code)$",
        "an operation to add without a value is none (RFC 6902); Kubernetes adds a null",
    ),
    Known(
        "webhooks.warnings_of_two_lines",
        r"/1:POST configmaps/warnings$",
        "onejob shows them in one line; Kubernetes drops them",
    ),
)
