"""What the kubelet does with the containers of a Job's Pods when they fail."""

from functools import lru_cache

import msgspec

from onejob.objects.job import Job
from onejob.objects.meta import View


def restart_policy_of(job: Job) -> str:
    template = bytes(job.spec.template)
    # Large templates are not remembered: five hundred of them could fill the memory.
    return _read(template) if len(template) <= 16 * 1024 else read_restart_policy(template)


def read_restart_policy(template: bytes | msgspec.Raw) -> str:
    """Of one template that is not asked for again."""
    return _decoder.decode(template).spec.restart_policy


class _TemplateSpec(View, frozen=True):
    restart_policy: str = ""


class _Template(View, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


_decoder = msgspec.json.Decoder(_Template)
_read = lru_cache(maxsize=512)(read_restart_policy)
