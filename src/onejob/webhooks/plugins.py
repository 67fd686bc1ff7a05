"""The plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook."""

import asyncio
import logging
from collections.abc import Iterator
from random import Random
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from onejob.api.admission.admission import ObservableStore, refused
from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation
from onejob.api.admission.dynamic.plugins import Review
from onejob.api.service import Converter
from onejob.api.writing.metadata import new_uid
from onejob.api.writing.patching import json_patch
from onejob.cel import EvaluationError
from onejob.metrics import Metrics, WebhookCallLabels
from onejob.store.base import Change
from onejob.webhooks.calling import CallFailed, WebhookCaller
from onejob.webhooks.configurations import MUTATING, VALIDATING, Webhook, read_webhooks
from onejob.webhooks.reviews import Answer, Denied, InvalidResponse, decode_review, encode_review
from onejob.wire.errors import ApiError, InternalError
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry

log = logging.getLogger(__name__)

_MUTATION_NOTE: Final = "mutation.webhook.admission.k8s.io"


class _Webhooks:
    """Webhooks of all configurations of one kind, ordered by the configurations' names."""

    phase: Literal["admit", "validating"]
    resources: frozenset[str]

    def __init__(
        self,
        store: ObservableStore,
        kinds: KindRegistry,
        caller: WebhookCaller,
        rng: Random,
        metrics: Metrics,
        convert: Converter,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._caller = caller
        self._rng = rng
        self._metrics = metrics
        self._convert = convert
        self._configurations: dict[str, tuple[Webhook, ...]] = {}
        self._concerned: dict[tuple[str, Kind, str], bool] = {}
        kinds.subscribe(lambda _: self._concerned.clear())

    @property
    def active(self) -> bool:
        return bool(self._configurations)

    def staged(self, change: Change) -> None:
        """Handle a staged write of a configuration."""
        self._concerned.clear()
        if change.value is None:
            self._configurations.pop(change.key.name, None)
        else:
            self._configurations[change.key.name] = read_webhooks(change.value)

    def reload(self) -> None:
        self._concerned.clear()
        (resource,) = self.resources
        self._configurations = {
            name: read_webhooks(value)
            for name, value in self._store.newest_in(resource, "")
            if value is not None
        }

    def concerns(self, operation: Operation, kind: Kind, subresource: str) -> bool:
        """Return whether any webhook matches the operation on this kind."""
        place = (operation, kind, subresource)
        found = self._concerned.get(place)
        if found is None:
            found = self._concerned[place] = any(
                hook.version_for(operation, kind, subresource, self._same_storage_kinds(kind))
                is not None
                for hook in self._hooks()
            )
        return found

    def _hooks(self) -> Iterator[Webhook]:
        for name in sorted(self._configurations):
            yield from self._configurations[name]

    def _same_storage_kinds(self, kind: Kind) -> Iterator[Kind]:
        return (
            other for other in self._kinds.kinds if other.storage == kind.storage and other != kind
        )

    def _version_for(self, hook: Webhook, request: AdmissionRequest) -> Kind | None:
        """Return the version in which a webhook gets the request; None if it does not match.

        Raises Forbidden if a match condition cannot be evaluated.
        """
        kind = request.kind
        others = self._same_storage_kinds(kind)
        version = hook.version_for(request.operation, kind, request.subresource, others)
        if version is None or not hook.selectors.matches(request, self._store):
            return None
        try:
            return version if hook.condition_holds(request) else None
        except EvaluationError as error:
            if hook.fails_open:
                return None
            raise refused(kind.resource, request.name, str(error)) from error

    async def _call(self, hook: Webhook, request: AdmissionRequest, version: Kind) -> Answer:
        """Call a webhook. Raises Denied, CallFailed or InvalidResponse."""
        uid = new_uid(self._rng)
        mutating = self.phase == "admit"
        time = asyncio.get_running_loop().time
        began, code, rejected = time(), 200, False
        try:
            sent = await self._in_version(request, version)
            body = encode_review(uid, sent, version)
            response = await self._caller.call(hook.client, body, hook.seconds)
            answer = decode_review(response, uid, mutating=mutating)
            if not answer.allowed:
                raise Denied(hook.name, answer.status)
        except Denied as error:
            code, rejected = error.code, True
            self._count_rejection(hook, request, "no_error", error.code)
            raise
        except (CallFailed, InvalidResponse):
            code, rejected = 500, not hook.fails_open
            if rejected:
                self._count_rejection(hook, request, "calling_webhook_error", 0)
            raise
        finally:
            call = WebhookCallLabels(
                name=hook.name,
                type=self.phase,
                operation=request.operation,
                rejected="true" if rejected else "false",
            )
            self._metrics.webhook_duration.observe(time() - began, **call)
            self._metrics.webhook_requests.inc(**call, code=str(code))
        return answer

    async def _in_version(self, request: AdmissionRequest, version: Kind) -> AdmissionRequest:
        """Return the request with its objects in another version."""
        if version == request.kind or request.subresource not in ("", "status"):
            return request
        documents = [doc for doc in (request.object, request.old_object) if doc is not None]
        converted = list(await self._convert(documents, version))
        new = None if request.object is None else converted.pop(0)
        old = None if request.old_object is None else converted.pop(0)
        return replace(request, object=new, old_object=old)

    def _count_rejection(
        self,
        hook: Webhook,
        request: AdmissionRequest,
        error_type: Literal["calling_webhook_error", "no_error"],
        code: int,
    ) -> None:
        self._metrics.webhook_rejections.inc(
            name=hook.name,
            type=self.phase,
            operation=request.operation,
            error_type=error_type,
            rejection_code=str(code),
        )

    def _failed(self, hook: Webhook, error: Exception) -> InternalError | None:
        """Return the error of a failed call; None if the webhook's policy is to ignore failures."""
        if hook.fails_open:
            log.warning("failed calling webhook, failing open %s: %s", hook.name, error)
            self._metrics.webhook_fail_open.inc(name=hook.name, type=self.phase)
            return None
        return failed_call(hook.name, error)

    def _collect(self, hook: Webhook, review: Review, answer: Answer) -> None:
        review.warnings += answer.warnings
        for name, text in answer.annotations.items():
            review.annotations[f"{hook.name}/{name}"] = text


class MutatingWebhooks(_Webhooks):
    phase = "admit"
    resources = frozenset((MUTATING,))

    async def admit(self, review: Review) -> None:
        """Call the matching webhooks one after the other, each with the result of the last."""
        invoked: set[str] = review.memory.setdefault("webhooks invoked", set())
        again: set[str] = review.memory.setdefault("webhooks to reinvoke", set())
        if review.reinvoking and review.request.object != review.memory.get("webhooks output"):
            again |= invoked
        for index, hook in enumerate(self._hooks()):
            version = self._version_for(hook, review.request)
            if version is None or (review.reinvoking and hook.uid not in again):
                continue
            again.discard(hook.uid)
            if await self._mutate(hook, review, version, index):
                again |= invoked
                review.must_reinvoke = True
            if hook.reinvocable:
                invoked.add(hook.uid)
        review.memory["webhooks output"] = review.request.object

    async def _mutate(self, hook: Webhook, review: Review, version: Kind, index: int) -> bool:
        """Call one webhook, and return whether it changed the object."""
        request = review.request
        try:
            answer = await self._call(hook, request, version)
        except (CallFailed, InvalidResponse) as error:
            if failure := self._failed(hook, error):
                raise failure from error
            return False
        self._collect(hook, review, answer)
        changed = False
        if answer.patch:
            changed = await self._apply(hook, review, version, answer)
        place = f"round_{int(review.reinvoking)}_index_{index}"
        text = {"configuration": hook.configuration, "webhook": hook.name, "mutated": changed}
        review.annotations[f"{_MUTATION_NOTE}/{place}"] = msgspec.json.encode(text).decode()
        return changed

    async def _apply(self, hook: Webhook, review: Review, version: Kind, answer: Answer) -> bool:
        request = review.request
        if request.object is None:
            raise InternalError(
                f'Internal error occurred: admission webhook "{hook.name}" attempted to modify '
                "the object, which is not supported for this operation"
            )
        sent = (await self._in_version(request, version)).object
        assert sent is not None, "the version does not change whether there is an object"
        try:
            patched = json_patch(sent, list(answer.patch))
            if any(patched.get(name) != sent.get(name) for name in ("apiVersion", "kind")):
                raise InternalError("the patch changes apiVersion or kind of the object")
            if sent is not request.object:
                (patched,) = await self._convert((patched,), request.kind)
            return review.replace_object(patched)
        except ApiError as error:
            raise InternalError(
                f'Internal error occurred: applying the patch of admission webhook "{hook.name}": '
                f"{error.message}"
            ) from error


class ValidatingWebhooks(_Webhooks):
    phase = "validating"
    resources = frozenset((VALIDATING,))

    async def admit(self, review: Review) -> None:
        """Call all matching webhooks at once. The first rejection, in their order, is raised."""
        request = review.request
        calls = [
            self._validate(hook, review, version)
            for hook in self._hooks()
            if (version := self._version_for(hook, request)) is not None
        ]
        if len(calls) == 1:
            await calls[0]
        elif calls:
            results = await asyncio.gather(*calls, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _validate(self, hook: Webhook, review: Review, version: Kind) -> None:
        try:
            answer = await self._call(hook, review.request, version)
        except (CallFailed, InvalidResponse) as error:
            if failure := self._failed(hook, error):
                raise failure from error
            return
        self._collect(hook, review, answer)


def failed_call(name: str, error: Exception) -> InternalError:
    what = (
        "received invalid webhook response"
        if isinstance(error, InvalidResponse)
        else ("failed to call webhook")
    )
    return InternalError(
        f'Internal error occurred: failed calling webhook "{name}": {what}: {error}'
    )
