"""Mutants of the mirror: two copies of one Job, copies left behind, Jobs released too early."""

from collections.abc import Mapping

from onejob.controllers.mirror.controller import MirrorController
from onejob.controllers.mirror.pods import StandIns
from onejob.controllers.mirror.remote import Remote
from onejob.controllers.mirror.steps import Work
from onejob.planning.mirror import copying, planner
from sim.mutants.planting import Plant, edit

MUTANTS: Mapping[str, Plant] = {
    "copy created running": edit(
        copying.copy_of, ('spec["suspend"] = True', 'spec.pop("suspend", None)')
    ),
    "late copy taken for the one on record": edit(
        planner._copy_found, ("if found.uid != record.uid:", "if False:")
    ),
    "copy replaced while its Pods run": edit(planner._unproven, ("if pods_left:", "if False:")),
    "Job claimed without its finalizer": edit(Work._write_record, ("if claim:", "if False:")),
    "copy deleted without its UID": edit(
        Work._delete, ("Delete(key, propagation, uid=uid)", "Delete(key, propagation)")
    ),
    "unreachable target taken for an absent copy": edit(
        MirrorController._observe,
        (
            "return remote, self._unreachable(job, memory, reason, message)",
            "return remote, Absent(0, remote.server)",
        ),
    ),
    "loss of contact dated by one clock": edit(
        MirrorController._unreachable,
        ("max(min(moment - memory.lost_since, by_wall), 0.0)", "max(by_wall, 0.0)"),
    ),
    "Job of another taken for the copy": edit(
        planner._copy_found, ("if found.origin != job.metadata.uid:", "if False:")
    ),
    "Job released while its copy is deleted": edit(
        planner._deletion_step,
        ('return Wait("Leaving", f"deleting {_copy_id(record)}")', "return Release()"),
    ),
    "Job moved before its copy is gone": edit(
        planner._moving, ("return RemoveCopy(found.uid)", 'return Relocate(after, "moved")')
    ),
    "memory of a namesake kept": edit(
        MirrorController._memory_of, ("or memory.uid != job.metadata.uid", "")
    ),
    "stand-ins of gone Pods kept": edit(StandIns.follow, ("await self._remove(gone)", "pass")),
    "dead watch not noticed": edit(Remote.check_watch, ("and self._tasks:", "and False:")),
    "connection kept after its Secret changed": edit(
        MirrorController._remote, ("if self._versions[place] == version:", "if True:")
    ),
}
