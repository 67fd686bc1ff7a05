"""Controller that signs approved CertificateSigningRequests with the server's authority."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from onejob.api.access.certificates import BadAuthority
from onejob.api.access.signing import CertificateSigner
from onejob.api.kinds.certificates.contents import BadCertificateRequest, names_in, read_request
from onejob.client.base import Patch
from onejob.controllers.context import ControllerContext
from onejob.controllers.on_demand import OneQueue
from onejob.informers.cache import Delta
from onejob.informers.workqueue import WorkQueue, work
from onejob.objects.meta import Key
from onejob.planning.certificates import FAILED, is_to_be_signed, life_seconds, signer_refusal
from onejob.wire.errors import InternalError, NotFound

RESOURCE: Final = "certificatesigningrequests.certificates.k8s.io"


class CertificateSigning(OneQueue):
    """Signer for client certificates of the API and serving certificates of nodes.

    A request that its signer does not accept gets the condition Failed.
    """

    queue_name = "certificates"

    def __init__(self, context: ControllerContext, signer: CertificateSigner) -> None:
        self._client = context.client
        self._clock = context.clock
        self._signer = signer
        self._queue: WorkQueue[Key] = WorkQueue(first_delay=0.05, longest_delay=60.0)
        informer = context.informers.metadata(RESOURCE)
        informer.on_change(self._changed)
        for view in informer.cache:
            self._queue.add(Key(RESOURCE, "", view.metadata.name))

    def clock_jumped(self) -> None:
        """Do nothing: requests do not wait for a time."""

    async def run(self) -> None:
        """Sign requests until cancelled."""
        await work(self._queue, self.sync, workers=1, name="certificates")

    def _changed(self, deltas: Sequence[Delta[Any]]) -> None:
        for delta in deltas:
            if delta.new is not None:
                self._queue.add(delta.key)

    async def sync(self, key: Key) -> None:
        """Sign one request, if it is approved. Raises ApiError, to be repeated."""
        try:
            document = msgspec.json.decode(await self._client.get(key))
        except NotFound:
            return
        if not is_to_be_signed(document):
            return
        spec = document["spec"]
        now = self._clock.now()
        try:
            names = names_in(read_request(spec["request"]))
            refusal = signer_refusal(spec["signerName"], names, spec["usages"])
            if not refusal:
                seconds = life_seconds(spec.get("expirationSeconds"))
                certificate = self._signer.sign(spec["request"], spec["usages"], seconds, now)
        except BadCertificateRequest as error:
            refusal = str(error)
        except BadAuthority as error:
            raise InternalError(str(error)) from error
        if refusal:
            failed = {
                "type": FAILED,
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": refusal,
            }
            conditions = (document.get("status") or {}).get("conditions") or []
            await self._write(document, {"conditions": [*conditions, failed]})
        else:
            await self._write(document, {"certificate": certificate})

    async def _write(self, document: dict[str, Any], status: dict[str, Any]) -> None:
        metadata = document["metadata"]
        # The revision, so that a request that is denied meanwhile is not signed.
        known = {name: metadata[name] for name in ("uid", "resourceVersion")}
        body = msgspec.json.encode({"metadata": known, "status": status})
        await self._client.write(
            Patch(Key(RESOURCE, "", metadata["name"]), body, "merge", "status")
        )
