"""What the kubelet does with the containers of a Job's Pods when they fail."""

from functools import lru_cache

import msgspec

from onejob.objects.job import Job
from onejob.objects.meta import View


def restart_policy_of(job: Job) -> str:
    template = bytes(job.spec.template)
    # Large templates are not remembered: five hundred of them could fill the memory.
    return _read(template) if len(template) <= 16 * 1024 else _read.__wrapped__(template)


class _TemplateSpec(View, frozen=True):
    restart_policy: str = ""


class _Template(View, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


@lru_cache(maxsize=512)
def _read(template: bytes) -> str:
    return msgspec.json.decode(template, type=_Template).spec.restart_policy
