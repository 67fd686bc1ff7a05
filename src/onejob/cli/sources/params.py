"""Parameters of a Job created by `onejob run --params`."""

import sys
from typing import Any

from onejob.cli.sources.base import Api, get
from onejob.planning.job.parameter_rows import PARAMS_ANNOTATION
from onejob.wire.errors import NotFound
from onejob.wire.kinds import BY_RESOURCE


def params_of_job(api: Api, job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the ConfigMap with the Job's parameter rows.

    None if the Job has no parameters, or if the ConfigMap was deleted, which a note on stderr
    reports.
    """
    name = job["metadata"].get("annotations", {}).get(PARAMS_ANNOTATION)
    if name is None:
        return None
    try:
        return get(api, BY_RESOURCE["configmaps"], job["metadata"]["namespace"], name)
    except NotFound:
        print(
            f"note: configmap/{name}, which contained the parameters, was deleted", file=sys.stderr
        )
        return None
