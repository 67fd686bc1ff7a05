"""Webhooks of a scenario: a server behind TLS that records what it gets, and its configurations."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.differential.side import Document, NotReached, Side
from tests.webhooks.support import Hook, a_raw_hook, http_response, review_response

ROOT: Final = "/apis/admissionregistration.k8s.io/v1"
_POLL_SECONDS: Final = 0.2
_POLLS: Final = 150
_CANARY: Final = "canary"
#: The ConfigMap that onejob's own controller creates in each namespace.
_PUBLISHED: Final = "kube-root-ca.crt"
_NO_CANARY: Final = {"matchExpressions": [{"key": _CANARY, "operator": "DoesNotExist"}]}

#: Gets path and request of a review; returns fields of the `response`.
Respond = Callable[[str, Document], Document]


class Hooks:
    """The webhooks of one scenario, limited to its namespace."""

    def __init__(self, it: Side, hook: Hook) -> None:
        self._it = it
        self._hook = hook
        #: Path and decoded body of each call, without those of canaries.
        self.calls: list[tuple[str, Document]] = []
        self.respond: Respond = lambda path, request: {}
        #: Whole HTTP responses, by path.
        self.raw: dict[str, bytes] = {}
        #: Paths that are not answered.
        self.hanging: tuple[str, ...] = ()
        self.ended = asyncio.Event()
        #: Responses to conversion reviews.
        self.convert: Callable[[Document], Any] | None = None

    def client(self, path: str = "") -> Document:
        return self._hook.client(f"/{path}")

    def webhook(self, path: str, **fields: Any) -> Document:
        """Return a webhook for ConfigMaps that calls `path`; `fields` replace its own."""
        own = {"matchLabels": {"kubernetes.io/metadata.name": self._it.namespace}}
        return {
            "name": f"{path}.{self._it.namespace}.dev",
            "clientConfig": self.client(path),
            "rules": [rule()],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": own,
            "objectSelector": _NO_CANARY,
            **fields,
        }

    async def configure(self, kind: str, *webhooks: Document, name: str = "hooks") -> None:
        """Create a configuration, and wait until it is in force."""
        await self._create(kind, f"{self._it.namespace}-{name}", *webhooks)
        await self._settle(kind, name)

    async def _settle(self, kind: str, name: str) -> None:
        """Wait until a configuration that was created later is in force."""
        canary = f"{_CANARY}-{kind}-{name}"
        chosen = {"matchLabels": {_CANARY: name}}
        webhook = self.webhook(canary, objectSelector=chosen)
        await self._create(kind, f"{self._it.namespace}-{canary}", webhook, quiet=True)
        labels = {_CANARY: name}
        for _ in range(_POLLS):
            answer = await self._it.send(
                "POST",
                self._it.path("configmaps"),
                {"metadata": {"name": _CANARY, "labels": labels}},
                query={"dryRun": "All"},
            )
            if f"{_CANARY} of {kind}".encode() in answer.body:
                path = f"{ROOT}/{kind}webhookconfigurations/{self._it.namespace}-{canary}"
                await self._it.send("DELETE", path)
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise NotReached(f"the webhooks are not in force: {answer.body!r}")

    async def _create(self, kind: str, name: str, *webhooks: Document, quiet: bool = False) -> None:
        body = {"metadata": {"name": name}, "webhooks": list(webhooks)}
        ask = self._it.send if quiet else self._it.ask
        await ask("POST", f"{ROOT}/{kind}webhookconfigurations", body)

    def show_calls(self, what: str = "calls", *, in_order: bool = True) -> None:
        """Record which webhooks were called, by path, and forget the calls."""
        paths = [path for path, _ in self.calls]
        self._it.show(what, paths if in_order else sorted(paths))
        self.calls.clear()

    def show_reviews(self, what: str = "reviews") -> None:
        """Record the calls with their bodies, and forget them."""
        shown = [{"path": path, "review": _comparable(body)} for path, body in self.calls]
        self._it.show(what, shown)
        self.calls.clear()

    async def answer(self, target: str, body: bytes) -> bytes:
        path = target.partition("?")[0].strip("/")
        review = msgspec.json.decode(body)
        if path.startswith(_CANARY):
            kind = path.split("-")[1]
            status = {"message": f"{_CANARY} of {kind}"}
            return http_response(review_response(review, {"allowed": False, "status": status}))
        if review.get("request", {}).get("name") == _PUBLISHED:
            return http_response(review_response(review, {}))
        self.calls.append((path, review))
        if path in self.hanging:
            await self.ended.wait()
        if path in self.raw:
            return self.raw[path]
        if self.convert is not None and review["kind"] == "ConversionReview":
            return http_response(msgspec.json.encode(self.convert(review)))
        return http_response(review_response(review, self.respond(path, review["request"])))


def rule(*resources: str, group: str = "", version: str = "v1", **fields: Any) -> Document:
    return {
        "operations": ["*"],
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources or ("configmaps",)),
        **fields,
    }


@asynccontextmanager
async def hooks(it: Side) -> AsyncIterator[Hooks]:
    """Run a webhook server for the scenario."""
    running: Hooks | None = None

    async def answer(target: str, body: bytes) -> bytes:
        assert running is not None
        return await running.answer(target, body)

    async with a_raw_hook(Path(_certificates().name), answer) as hook:
        it.hide(f"127.0.0.1:{hook.port}", "<hook>")
        it.hide(hook.ca_bundle, "<bundle>")
        running = Hooks(it, hook)
        try:
            yield running
        finally:
            running.ended.set()


@cache
def _certificates() -> "tempfile.TemporaryDirectory[str]":
    """Return the folder of the certificates of all webhooks; it is removed at the end."""
    return tempfile.TemporaryDirectory(prefix="differential-hooks-")


def _comparable(review: Document) -> Document:
    """Return the review without the user, who is another one on each side."""
    request = dict(review["request"])
    if "userInfo" in request:
        request["userInfo"] = "groups" in request["userInfo"]
    return {**review, "request": request}
