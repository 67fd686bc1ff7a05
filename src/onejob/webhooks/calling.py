"""Calls to webhooks: addresses, TLS, limits on time and size."""

import asyncio
import base64
import binascii
import ssl
from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from onejob.client.transport.answer import BrokenResponse, UnusableResponse
from onejob.client.transport.dialing import Route
from onejob.client.transport.pool import Transport
from onejob.objects.meta import PODS, Key
from onejob.store.base import Store
from onejob.webhooks.configurations import ClientConfig
from onejob.webhooks.status_texts import is_success, seconds_until_retry, status_text

#: Annotation of a Service: the address, `host:port`, at which its webhooks listen.
ADDRESS_ANNOTATION: Final = "onejob.dev/webhook-address"
#: Upper bound on a response; an object has at most half as many bytes.
MAX_RESPONSE_BYTES: Final = 3 * 1024 * 1024
#: Attempts at one call, if the webhook asks to be called again; the same as upstream's.
_MAX_ATTEMPTS: Final = 11
#: OpenSSL's codes of certificates whose issuer is absent or not trusted.
_UNTRUSTED: Final = frozenset((2, 18, 19, 20, 21))
#: Connection pools that are kept; the least recently used one is closed beyond that.
_MAX_POOLS: Final = 64
_SERVICES: Final = "services"
_ENDPOINTS: Final = "endpoints"
_SLICES: Final = "endpointslices.discovery.k8s.io"
_SLICE_LABEL: Final = "kubernetes.io/service-name"
_HEADERS: Final = (("Content-Type", "application/json"), ("Accept", "application/json"))


class CallFailed(Exception):
    """The webhook could not be reached, or did not answer successfully in time."""

    #: Begin of the error's text, as upstream.
    prefix: Final = "failed to call webhook: "

    def __init__(self, message: str, code: int = 503) -> None:
        """`code` is that of the response, if there was any; for metrics."""
        super().__init__(message)
        self.code = code


class WebhookCaller:
    """Sender of requests to webhooks, with a connection pool for each address."""

    def __init__(self, store: Store, host: str = "") -> None:
        """`host` is the host of webhooks behind Services without any other address."""
        self._store = store
        self._host = host
        self._pools: dict[tuple[str, str, str], Transport] = {}

    async def call(self, client: ClientConfig, body: bytes, seconds: float) -> bytes:
        """Send a POST request and return the body of the response. Raises CallFailed."""
        url, path = _shown_place(client)
        shown = f'Post "{url}?timeout={seconds:g}s"'
        address = urlsplit(url).netloc
        try:
            tls_name = ""
            if not client.url:
                tls_name, address = f"{client.name}.{client.namespace}.svc", self._address(client)
            transport = self._transport(f"https://{address}", client.ca_bundle, tls_name)
            # As upstream: envtest writes URLs with two slashes, which Go's servers would redirect.
            target = f"{normpath('/' + path.lstrip('/'))}?timeout={seconds:g}s"
            async with asyncio.timeout(seconds):
                return await _called(transport, target, body, seconds)
        except TimeoutError as error:
            raise CallFailed(f"{shown}: context deadline exceeded") from error
        except (OSError, ValueError, _NoAddress) as error:
            raise CallFailed(f"{shown}: {_reason(error, address)}") from error

    async def close(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.close()

    def _address(self, client: ClientConfig) -> str:
        """Return `host:port` of a Service. Raises _NoAddress."""
        service = self._read(_SERVICES, client.namespace, client.name)
        if service is not None:
            annotations = service["metadata"].get("annotations") or {}
            if address := annotations.get(ADDRESS_ANNOTATION):
                return str(address)
            port = _service_port(service, client.port)
            for address in self._endpoints(client, port):
                return address
            if address := self._pod_address(service, port):
                return address
        if self._host:
            return f"{self._host}:{client.port}"
        if service is None:
            raise _NoAddress(f'service "{client.name}" not found')
        raise _NoAddress(f'no endpoints available for service "{client.name}"')

    def _endpoints(self, client: ClientConfig, port: dict[str, Any]) -> Iterator[str]:
        for stored in self._store.list(_SLICES, client.namespace).items:
            document = msgspec.json.decode(stored.value)
            labels = document["metadata"].get("labels") or {}
            if labels.get(_SLICE_LABEL) == client.name:
                yield from _slice_addresses(document, port)
        endpoints = self._read(_ENDPOINTS, client.namespace, client.name)
        for subset in (endpoints or {}).get("subsets") or ():
            number = _numbered(subset.get("ports") or (), port)
            for address in subset.get("addresses") or ():
                yield _host_and_port(address["ip"], number)

    def _pod_address(self, service: dict[str, Any], port: dict[str, Any]) -> str:
        """Return the address of a running Pod of a Service; "" if there is none.

        Processes of Pods listen on this machine unless the Pod has an address of its own.
        """
        selector = (service.get("spec") or {}).get("selector")
        if not selector:
            return ""
        for stored in self._store.list(PODS, service["metadata"]["namespace"]).items:
            pod = msgspec.json.decode(stored.value)
            labels = pod["metadata"].get("labels") or {}
            status = pod.get("status") or {}
            if status.get("phase") == "Running" and selector.items() <= labels.items():
                number = _target_port(pod, port)
                if number:
                    return _host_and_port(status.get("podIP") or "127.0.0.1", number)
        return ""

    def _read(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        stored = self._store.get(Key(resource, namespace, name))
        if stored is None:
            return None
        document: dict[str, Any] = msgspec.json.decode(stored.value)
        return document

    def _transport(self, server: str, ca_bundle: str, tls_name: str) -> Transport:
        place = (server, ca_bundle, tls_name)
        transport = self._pools.pop(place, None)
        if transport is None:
            route = Route(server, _tls(ca_bundle), tls_name)
            transport = Transport(route, _HEADERS)
        # Most recently used last. Connections that are in use are closed by their webhooks later.
        self._pools[place] = transport
        while len(self._pools) > _MAX_POOLS:
            self._pools.pop(next(iter(self._pools))).close_idle()
        return transport


class _NoAddress(Exception):
    """The Service of a webhook has no address."""


def _shown_place(client: ClientConfig) -> tuple[str, str]:
    """Return URL and path of a webhook. The URL of a Service is for messages only."""
    if client.url:
        return client.url, urlsplit(client.url).path
    path = client.path or "/"
    return f"https://{client.name}.{client.namespace}.svc:{client.port}{path}", path


async def _called(transport: Transport, target: str, body: bytes, seconds: float) -> bytes:
    """Send a request, again if the webhook asks for that; the caller ends it at its time limit.

    Raises CallFailed or OSError.
    """
    for attempt in range(_MAX_ATTEMPTS):
        try:
            status, headers, received = await _exchange(transport, target, body, seconds)
        except UnusableResponse:
            raise
        except BrokenResponse:
            # The webhook closed a pooled connection; webhooks must be idempotent.
            status, headers, received = await _exchange(transport, target, body, seconds)
        later = seconds_until_retry(status, headers.get("retry-after", ""))
        if later is None or attempt == _MAX_ATTEMPTS - 1:
            break
        await asyncio.sleep(later)
    if not is_success(status):
        raise CallFailed(status_text(status, headers.get("content-type", ""), received), status)
    if not received:
        content_type = headers.get("content-type") or "application/json"
        raise CallFailed(
            f"0-length response with status code: {status} and content type: {content_type}"
        )
    return received


async def _exchange(
    transport: Transport, target: str, body: bytes, seconds: float
) -> tuple[int, Mapping[str, str], bytes]:
    """Return status, headers and body of the response. Raises OSError."""
    async with await transport.request("POST", target, (), body, seconds) as response:
        received = await response.read(MAX_RESPONSE_BYTES)
        return response.status, response.headers, received


def _tls(ca_bundle: str) -> ssl.SSLContext:
    if not ca_bundle:
        return ssl.create_default_context()
    try:
        pem = base64.b64decode(ca_bundle, validate=True).decode("ascii")
        context = ssl.create_default_context(cadata=pem)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError, ValueError) as error:
        raise CallFailed(
            "unable to load root certificates: unable to parse bytes as PEM block"
        ) from error
    # As Go verifies: any certificate of the bundle is trusted, also the webhook's own (envtest),
    # and extensions that OpenSSL's strict mode requires may be missing.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _service_port(service: dict[str, Any], number: int) -> dict[str, Any]:
    ports = (service.get("spec") or {}).get("ports") or ()
    return next((port for port in ports if port.get("port") == number), {"port": number})


def _slice_addresses(document: dict[str, Any], port: dict[str, Any]) -> Iterator[str]:
    number = _numbered(document.get("ports") or (), port)
    for endpoint in document.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready") is not False:
            for address in endpoint.get("addresses") or ():
                yield _host_and_port(address, number)


def _numbered(ports: Any, port: dict[str, Any]) -> int:
    """Return the port number of endpoints for a port of their Service, which has the same name."""
    for candidate in ports:
        if (candidate.get("name") or "") == (port.get("name") or "") and candidate.get("port"):
            return int(candidate["port"])
    target = port.get("targetPort")
    return target if isinstance(target, int) and target else int(port["port"])


def _target_port(pod: dict[str, Any], port: dict[str, Any]) -> int:
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    for container in pod["spec"].get("containers") or ():
        for declared in container.get("ports") or ():
            if declared.get("name") == target:
                return int(declared["containerPort"])
    return 0


def _host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: Exception, address: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        untrusted = error.verify_code in _UNTRUSTED
        text = "certificate signed by unknown authority" if untrusted else error.verify_message
        return f"tls: failed to verify certificate: x509: {text}"
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {address}: connect: connection refused"
    return str(error) or type(error).__name__
