"""Webhook channel: messages as signed HTTP requests.

The signature follows https://www.standardwebhooks.com.
"""

import os
import ssl
from typing import Final
from urllib.parse import urlsplit

import msgspec

from onejob import __version__
from onejob.client.proxies import proxy_for
from onejob.client.transport.dialing import Route
from onejob.client.transport.pool import Transport
from onejob.clock import Clock
from onejob.controllers.notify.config import BadNotifyConfig, Webhook, read_secret
from onejob.controllers.notify.delivery import NotDelivered
from onejob.planning.notify.messages import Message, signature

#: Bytes. The body of a response is ignored; a longer one is not read to its end.
_MAX_RESPONSE_BYTES: Final = 65536


class WebhookChannel:
    """Channel to a webhook."""

    def __init__(self, webhook: Webhook, clock: Clock) -> None:
        """Raises BadNotifyConfig."""
        self._clock = clock
        self._seconds = webhook.timeout_seconds
        self._secret = read_secret(webhook.secret_file) if webhook.secret_file else b""
        url = urlsplit(webhook.url)
        server = f"{url.scheme}://{url.netloc}"
        self._target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = (
            ("User-Agent", f"onejob/{__version__}"),
            ("Content-Type", "application/json"),
            *webhook.headers.items(),
        )
        tls = _tls(webhook) if url.scheme == "https" else None
        route = Route(server, tls, proxy=proxy_for(server, os.environ))
        self._transport = Transport(route, headers)

    async def send(self, message: Message) -> None:
        body = _body(message)
        sent_at = int(self._clock.now().timestamp())
        headers = [("webhook-id", message.id), ("webhook-timestamp", str(sent_at))]
        if self._secret:
            signed = signature(self._secret, message.id, sent_at, body)
            headers.append(("webhook-signature", signed))
        try:
            response = await self._transport.request(
                "POST", self._target, tuple(headers), body, self._seconds
            )
            async with response:
                read = 0
                while read < _MAX_RESPONSE_BYTES and (piece := await response.next_piece()):
                    read += len(piece)
        except OSError as error:
            raise NotDelivered(str(error) or type(error).__name__) from None
        # Redirects are not followed: the configuration alone decides where messages go.
        if not 200 <= response.status < 300:
            raise NotDelivered(f"the webhook responded with {response.status}")

    async def close(self) -> None:
        await self._transport.close()


def _tls(webhook: Webhook) -> ssl.SSLContext:
    """Return the TLS context for the webhook. Raises BadNotifyConfig."""
    try:
        return ssl.create_default_context(cafile=webhook.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise BadNotifyConfig(f"{webhook.ca_file} contains no certificates: {error}") from None


def _body(message: Message) -> bytes:
    """Return the encoded request body of a message."""
    return msgspec.json.encode(
        {
            "type": f"{message.kind.lower()}.{message.event}",
            "timestamp": message.at,
            # The field that chat programs display.
            "text": message.text,
            "data": message,
        }
    )
