"""The plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook."""

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Any, Final, Literal

import msgspec

from onejob.api.admission.admission import ObservableStore, refused
from onejob.api.admission.dynamic.activation import Authorize, OutOfBudget, activation
from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation
from onejob.api.admission.dynamic.matching import Attempt
from onejob.api.admission.dynamic.plugins import Review
from onejob.api.admission.dynamic.versions import in_version, other_versions
from onejob.api.service import Converter
from onejob.api.writing.metadata import new_uid
from onejob.api.writing.patching import json_patch
from onejob.cel import EvaluationError
from onejob.metrics import Metrics, WebhookCallLabels
from onejob.store.base import Change
from onejob.webhooks.calling import CallFailed, WebhookCaller
from onejob.webhooks.configurations import MUTATING, VALIDATING, Webhook, read_webhooks
from onejob.webhooks.reviews import (
    Answer,
    Denied,
    InvalidResponse,
    decode_patch,
    decode_review,
    encode_review,
)
from onejob.wire.errors import ApiError, InternalError
from onejob.wire.kinds import Kind
from onejob.wire.names import qualified_name_errors
from onejob.wire.registry import KindRegistry

log = logging.getLogger(__name__)

_MUTATION_NOTE: Final = "mutation.webhook.admission.k8s.io"
_VALIDATION_NOTE: Final = "validating.webhook.admission.k8s.io"


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
        authorize: Authorize,
    ) -> None:
        self._authorize = authorize
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
        place = (operation, kind, subresource)
        found = self._concerned.get(place)
        if found is None:
            attempt = Attempt(operation, kind, subresource, other_versions(self._kinds, kind))
            found = self._concerned[place] = any(
                hook.version_for(attempt) is not None for hook in self._hooks()
            )
        return found

    def _hooks(self) -> Sequence[Webhook]:
        """Return the current webhooks: configurations may change while one is called."""
        return [
            hook for name in sorted(self._configurations) for hook in self._configurations[name]
        ]

    async def _matched(self, hook: Webhook, request: AdmissionRequest) -> "_Invocation | None":
        """Return the request as a webhook gets it; None if it does not match.

        Raises Forbidden if a match condition cannot be evaluated.
        """
        kind = request.request_kind
        others = other_versions(self._kinds, kind)
        version = hook.version_for(Attempt(request.operation, kind, request.subresource, others))
        if version is None or not hook.selectors.matches(request, self._store):
            return None
        sent = await in_version(request, version, self._convert)
        if hook.conditions.expressions:
            try:
                if not hook.conditions.hold(activation(sent, version, self._authorize)):
                    return None
            except (EvaluationError, OutOfBudget) as error:
                if hook.fails_open:
                    return None
                raise refused(kind.resource, request.name, str(error)) from error
        return _Invocation(hook, version, sent)

    async def _call(self, invocation: "_Invocation", review: Review) -> Answer:
        """Call a webhook and keep its warnings and annotations in the review.

        Raises Denied, CallFailed or InvalidResponse.
        """
        hook, request = invocation.hook, invocation.sent
        uid = new_uid(self._rng)
        time = asyncio.get_running_loop().time
        began, code, rejected = time(), 200, False
        try:
            body = encode_review(uid, request, invocation.version, hook.review_version)
            response = await self._caller.call(hook.client, body, hook.seconds)
            answer = decode_review(
                response, uid, hook.review_version, mutating=self.phase == "admit"
            )
            self._collect(hook, review, answer)
            if not answer.allowed:
                raise Denied(hook.name, answer.status)
        except Denied as error:
            code, rejected = error.code, True
            self._count_rejection(hook, request, "no_error", error.code)
            raise
        except (CallFailed, InvalidResponse) as error:
            code, rejected = error.code, not hook.fails_open
            if rejected:
                self._count_rejection(hook, request, "calling_webhook_error", code)
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

    def _failed(self, hook: Webhook, error: CallFailed | InvalidResponse) -> InternalError | None:
        """Return the error of a failed call; None if the webhook's policy is to ignore failures."""
        if hook.fails_open:
            log.warning("failed calling webhook, failing open %s: %s", hook.name, error)
            self._metrics.webhook_fail_open.inc(name=hook.name, type=self.phase)
            return None
        return InternalError.occurred(
            f'failed calling webhook "{hook.name}": {error.prefix}{error}'
        )

    def _collect(self, hook: Webhook, review: Review, answer: Answer) -> None:
        review.warnings += answer.warnings
        for name, text in answer.annotations.items():
            key = f"{hook.name}/{name}"
            if errors := qualified_name_errors(key):
                log.warning("webhook %s: bad audit annotation %r: %s", hook.name, name, errors[0])
            else:
                review.annotations[key] = text


class _Invocation(msgspec.Struct, frozen=True):
    hook: Webhook
    #: Version of the objects in `sent`.
    version: Kind
    sent: AdmissionRequest


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
            invocation = await self._matched(hook, review.request)
            if invocation is None or (review.reinvoking and hook.uid not in again):
                continue
            again.discard(hook.uid)
            if await self._mutate(invocation, review, index):
                again |= invoked
                review.must_reinvoke = True
            if hook.reinvocable:
                invoked.add(hook.uid)
        review.memory["webhooks output"] = review.request.object

    async def _mutate(self, invocation: _Invocation, review: Review, index: int) -> bool:
        """Call one webhook, and return whether it changed the object."""
        hook = invocation.hook
        place = f"round_{int(review.reinvoking)}_index_{index}"
        changed = False
        try:
            answer = await self._call(invocation, review)
            if operations := decode_patch(answer):
                changed = await self._apply(invocation, review, operations)
        except (CallFailed, InvalidResponse) as error:
            if failure := self._failed(hook, error):
                raise failure from error
            review.annotations[f"failed-open.{_MUTATION_NOTE}/{place}"] = hook.name
        finally:
            text = {"configuration": hook.configuration, "webhook": hook.name, "mutated": changed}
            review.annotations[f"{_MUTATION_NOTE}/{place}"] = msgspec.json.encode(text).decode()
        return changed

    async def _apply(self, invocation: _Invocation, review: Review, operations: list[Any]) -> bool:
        name, sent = invocation.hook.name, invocation.sent.object
        if sent is None:
            raise InternalError.occurred(
                f'admission webhook "{name}" attempted to modify the object, '
                "which is not supported for this operation"
            )
        try:
            patched = json_patch(sent, operations)
            if any(patched.get(each) != sent.get(each) for each in ("apiVersion", "kind")):
                raise InternalError("the patch changes apiVersion or kind of the object")
            if sent is not review.request.object:
                (patched,) = await self._convert((patched,), review.request.kind)
            return review.replace_object(patched)
        except ApiError as error:
            raise InternalError.occurred(
                f'applying the patch of admission webhook "{name}": {error.message}'
            ) from error


class ValidatingWebhooks(_Webhooks):
    phase = "validating"
    resources = frozenset((VALIDATING,))

    async def admit(self, review: Review) -> None:
        """Call all matching webhooks at once. The first rejection, in their order, is raised."""
        matched = [await self._matched(hook, review.request) for hook in self._hooks()]
        calls = [
            self._validate(invocation, review, index)
            for index, invocation in enumerate(filter(None, matched))
        ]
        if len(calls) == 1:
            await calls[0]
        elif calls:
            results = await asyncio.gather(*calls, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _validate(self, invocation: _Invocation, review: Review, index: int) -> None:
        hook = invocation.hook
        try:
            await self._call(invocation, review)
        except (CallFailed, InvalidResponse) as error:
            if failure := self._failed(hook, error):
                raise failure from error
            place = f"round_0_index_{index}"
            review.annotations[f"failed-open.{_VALIDATION_NOTE}/{place}"] = hook.name
