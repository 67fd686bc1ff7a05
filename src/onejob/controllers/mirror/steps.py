"""Execution of the steps of a mirrored Job's plan."""

import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from onejob.client.base import Client, Create, Delete, Patch, Replace
from onejob.client.events import EventRecorder, about
from onejob.controllers.mirror.config import CannotCopy, copy_config
from onejob.controllers.mirror.pods import StandIns
from onejob.controllers.mirror.remote import Remote
from onejob.objects.job import Job, is_finished
from onejob.objects.meta import JOBS, Key
from onejob.planning.mirror import names
from onejob.planning.mirror.annotations import CopyLocation, read_mirror_spec, record_text
from onejob.planning.mirror.copying import changed_copy
from onejob.planning.mirror.planner import (
    ChangeCopy,
    ClaimJob,
    CreateCopy,
    Fail,
    FoundCopy,
    LinkCopy,
    RecordState,
    Release,
    Relocate,
    RemoveCopy,
    Step,
)
from onejob.planning.mirror.planner import Remote as Observed
from onejob.planning.mirror.status import (
    failed_status,
    mirrored_status,
    ready_condition,
    with_condition,
)
from onejob.wire.errors import AlreadyExists, Invalid, NotFound

log = logging.getLogger(__name__)

Document = dict[str, Any]


class Stuck(Exception):
    """A step cannot be taken for a reason that users can resolve."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(slots=True)
class Work:
    """One Job at one moment, with the clients needed to act on it."""

    client: Client
    recorder: EventRecorder
    job: Job
    document: Document
    remote: Remote | None
    stand_ins: StandIns | None
    now: datetime
    #: Whether an ApiError raised now comes from the remote server rather than the local one.
    asking_remote: bool = field(default=False)

    async def take(self, step: Step) -> None:
        """Execute one step. Raises Stuck, or ApiError."""
        match step:
            case ClaimJob(record):
                await self._write_record(record, claim=True)
            case RecordState(record):
                await self._write_record(record)
            case LinkCopy(record):
                await self._write_record(record)
                place = f"job {record.namespace}/{record.name} on {record.target}"
                self._record_event(
                    "Normal", "CopyCreated", f"{place} (UID {record.uid}) is the copy"
                )
            case CreateCopy(document):
                await self._create(document)
            case ChangeCopy():
                await self._change(step)
            case RemoveCopy(uid, propagation):
                await self._delete(uid, propagation)
            case Relocate(record, message, abandoned):
                await self._write_record(record)
                kind = "Warning" if abandoned else "Normal"
                self._record_event(kind, "CopyAbandoned" if abandoned else "CopyGone", message)
            case Fail(reason, message):
                if self.stand_ins is not None:
                    await self.stand_ins.remove_all()
                spec, old = self.document["spec"], self.document.get("status", {})
                await self._write_status(failed_status(spec, old, reason, message, self.now))
                self._record_event("Warning", reason, message)
            case _:
                raise AssertionError(f"not a step to be taken: {step}")

    async def report(self, copy: Document) -> bool:
        """Copy the state of the remote Job and its Pods into the local Job.

        Return whether the local Job is finished.
        """
        assert self.remote is not None, "a copy was read from somewhere"
        over = is_finished(copy)
        await self._follow_pods(copy, fresh=over)
        spec, old = self.document["spec"], self.document.get("status", {})
        status = mirrored_status(spec, old, copy.get("status", {}), self.now)
        place = f"{copy['metadata']['namespace']}/{copy['metadata']['name']}"
        message = f"job {place} on {self.remote.target} ({self.remote.server}) is the copy"
        await self._write_status(
            with_condition(status, ready=True, reason="Mirroring", message=message, now=self.now)
        )
        return is_finished({"status": status})

    async def follow(self, observed: Observed) -> None:
        """Update the stand-in Pods, also while the Job waits."""
        if isinstance(observed, FoundCopy) and observed.origin == self.job.metadata.uid:
            await self._follow_pods(observed.document, fresh=False)

    async def trouble(self, reason: str, message: str, *, brief: str) -> None:
        """Write a problem to the Job's mirror condition, and record an Event."""
        before = ready_condition(self.document.get("status", {}))
        if before is None or before.get("reason") != reason:
            self._record_event("Warning", reason, brief)
        status = with_condition(
            self.document.get("status", {}), ready=False, reason=reason, message=message,
            now=self.now,
        )  # fmt: skip
        await self._write_status(status)

    async def release(self, step: Release) -> None:
        """Remove the finalizer: the last step, after which the Job may be deleted."""
        if self.stand_ins is not None:
            await self.stand_ins.remove_all()
        if step.message:
            self._record_event("Warning", "CopyAbandoned", step.message)
            await self.recorder.flush()
        left = [name for name in self.document["metadata"]["finalizers"] if name != names.FINALIZER]
        await self._patch_metadata({"finalizers": left})

    # --- here -------------------------------------------------------------------------------

    async def _write_record(self, record: CopyLocation, *, claim: bool = False) -> None:
        metadata: Document = {"annotations": {names.RECORD: record_text(record)}}
        if claim:
            before = self.document["metadata"].get("finalizers", [])
            metadata["finalizers"] = [*before, *{names.FINALIZER}.difference(before)]
        await self._patch_metadata(metadata)

    async def _patch_metadata(self, metadata: Document) -> None:
        ours = self.document["metadata"]
        same = {"uid": ours["uid"], "resourceVersion": ours["resourceVersion"]}
        body = msgspec.json.encode({"metadata": {**metadata, **same}})
        await self.client.write(Patch(self.job.key, body, "merge"))

    async def _write_status(self, status: Document) -> None:
        if status == self.document.get("status", {}):
            return
        changed = {**self.document, "status": status}
        await self.client.write(Replace(self.job.key, msgspec.json.encode(changed), "status"))

    def _record_event(self, kind: str, reason: str, message: str) -> None:
        self.recorder.record(about("batch/v1", "Job", self.job.metadata), kind, reason, message)

    # --- there ------------------------------------------------------------------------------

    async def _create(self, document: Document) -> None:
        """Create the copy; an existing one is left for the next read."""
        remote = self._remote()
        self.asking_remote = True
        try:
            await remote.write(Create(JOBS, remote.namespace, msgspec.json.encode(document)))
        except AlreadyExists:
            # Our own copy or another Job; the next read decides.
            return
        except NotFound as missing:
            raise Stuck(
                "NamespaceMissing",
                f"namespace {remote.namespace} does not exist on {remote.target}: create it "
                f"there, or specify another one with {names.NAMESPACE}",
            ) from missing
        except Invalid as invalid:
            raise Stuck(
                "CopyRefused", f"{remote.server} rejected the request: {invalid.message}"
            ) from invalid

    async def _change(self, step: ChangeCopy) -> None:
        """Change the copy, after copying its configuration if it is about to start."""
        remote = self._remote()
        self.asking_remote = True
        metadata = step.copy["metadata"]
        if step.starts:
            try:
                wanted = read_mirror_spec(self.job)
                await copy_config(self.client, remote, self.document, step.copy, wanted.copied)
            except CannotCopy as error:
                raise Stuck("ConfigNotCopied", str(error)) from error
        changed = changed_copy(self.document, step.copy, step.changes)
        key = Key(JOBS, metadata["namespace"], metadata["name"])
        try:
            await remote.write(Replace(key, msgspec.json.encode(changed)))
        except Invalid as invalid:
            raise Stuck(
                "CopyRefused", f"{remote.server} rejected the request: {invalid.message}"
            ) from invalid
        text = ", ".join(map(str, step.changes))
        self._record_event("Normal", "CopyChanged", f"updated the copy on {remote.target}: {text}")

    async def _delete(self, uid: str, propagation: Any) -> None:
        """Delete the copy of this UID; one that is gone is ignored."""
        remote = self._remote()
        self.asking_remote = True
        record_name = self.job.metadata.name
        key = Key(JOBS, remote.namespace, record_name)
        try:
            await remote.write(Delete(key, propagation, uid=uid))
        except NotFound:
            return

    async def _follow_pods(self, copy: Document, *, fresh: bool) -> None:
        """Bring the stand-ins up to date; `fresh` reads the remote Pods anew."""
        if self.stand_ins is None:
            return
        remote, origin = self._remote(), self.job.metadata.uid
        self.asking_remote = True
        if fresh:
            pods = await remote.pods_of(origin)
        else:
            pods = list(remote.pods.cache.find("origin", origin))
        self.asking_remote = False
        if fresh or remote.pods_synced:
            forward = not self.job.metadata.deleting
            await self.stand_ins.follow(remote, pods, forward=forward)
            await self.stand_ins.bring_events(remote, copy["metadata"]["uid"])

    def _remote(self) -> Remote:
        """Return the connection, which steps on the target require."""
        assert self.remote is not None, "steps over there follow from what was read there"
        return self.remote
