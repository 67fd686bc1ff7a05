"""The parameters of a Job that was made by `onejob run --params`."""

import sys
from typing import Any

from onejob.cli.clients.base import Api, get
from onejob.planning.job.parameter_rows import PARAMS_ANNOTATION
from onejob.wire.errors import NotFound
from onejob.wire.kinds import BY_RESOURCE


def params_of_job(api: Api, job: dict[str, Any]) -> dict[str, Any] | None:
    """The ConfigMap with its rows; None if it has none, or if that is gone, which is said."""
    name = job["metadata"].get("annotations", {}).get(PARAMS_ANNOTATION)
    if name is None:
        return None
    try:
        return get(api, BY_RESOURCE["configmaps"], job["metadata"]["namespace"], name)
    except NotFound:
        print(f"note: configmap/{name} with its parameters is gone", file=sys.stderr)
        return None
