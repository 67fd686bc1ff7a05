"""restartPolicy of a Job's Pods: the kubelet's handling of failed containers."""

from functools import lru_cache

import msgspec

from onejob.objects.job import Job
from onejob.objects.meta import View


def restart_policy_of(job: Job) -> str:
    template = bytes(job.spec.template)
    # Large templates are not cached: five hundred of them could exhaust memory.
    return _read(template) if len(template) <= 16 * 1024 else read_restart_policy(template)


def read_restart_policy(template: bytes | msgspec.Raw) -> str:
    """Return the restartPolicy without caching, for a template that is read only once."""
    return _decoder.decode(template).spec.restart_policy


class _TemplateSpec(View, frozen=True):
    restart_policy: str = ""


class _Template(View, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


_decoder = msgspec.json.Decoder(_Template)
_read = lru_cache(maxsize=512)(read_restart_policy)
