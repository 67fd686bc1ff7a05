"""TLS files provided by the user: serving certificate with key, and client CA.

The certificate replaces the server's own; the client CA is trusted in addition to the
server's own CA.
"""

import logging
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from onejob.api.access.certificates import Certificates
from onejob.api.access.private_files import WatchedFile

log = logging.getLogger(__name__)

_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)


class BadTlsFile(Exception):
    """A TLS file given by the user cannot be used. The message is one line that names the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    #: Serving certificate with its chain, and its key: both or none.
    certificate: Path | None = None
    key: Path | None = None
    #: CA for client certificates; a client authenticates as the user named in its certificate.
    client_authority: Path | None = None

    def server_context(self, own: Certificates) -> ssl.SSLContext:
        """Return a TLS context that rereads a changed certificate file at the next handshake.

        Raises BadTlsFile.
        """
        shown = self.certificate if self.certificate is not None else own.certificate
        return _reloading_context(shown, lambda: self._load(own))

    def _load(self, own: Certificates) -> ssl.SSLContext:
        """Return the TLS context of the user's files, or of the server's own. Raises BadTlsFile."""
        shown = own
        if self.certificate is not None and self.key is not None:
            _require_readable(self.certificate, self.key)
            shown = replace(own, certificate=self.certificate, key=self.key)
        try:
            context = shown.server_context(own.authority)
        except OSError as error:
            raise BadTlsFile(
                f"{shown.certificate} and {shown.key} are no certificate and its unencrypted "
                f"key, in PEM: {_reason(error)}"
            ) from error
        if self.client_authority is not None:
            _require_readable(self.client_authority)
            try:
                context.load_verify_locations(self.client_authority)
            except OSError as error:
                raise BadTlsFile(
                    f"{self.client_authority} holds no certificates in PEM: {_reason(error)}"
                ) from error
        return context

    def trusted_by_clients(self, own: Certificates) -> bytes:
        """Return the PEM certificates that kubeconfigs name as the authority.

        For a certificate given by the user, these are the certificates in its file, since nothing
        else is known about its issuer. The file may also contain the private key, which must not be
        copied.
        """
        if self.certificate is None:
            return own.authority_data
        found = _CERTIFICATE.findall(self.certificate.read_bytes())
        return b"".join(block + b"\n" for block in found)


def _reloading_context(certificate: Path, load: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Return a TLS context that is reloaded at handshakes after the certificate file changed."""
    file = WatchedFile(certificate)
    file.changed()
    first = newest = load()

    def at_handshake(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        nonlocal newest
        if file.changed():
            try:
                newest = load()
            except (BadTlsFile, OSError) as error:
                log.error("the server certificate stays as it was: %s", error)
            else:
                log.warning("the server shows the new certificate in %s", certificate)
        if newest is not first:
            connection.context = newest

    # Called for every connection, even if the client sends no server name.
    first.sni_callback = at_handshake
    return first


def _require_readable(*paths: Path) -> None:
    for path in paths:
        try:
            path.read_bytes()
        except OSError as error:
            raise BadTlsFile(f"cannot read {path}: {error.strerror}") from error


def _reason(error: OSError) -> str:
    """Return OpenSSL's reason of an error in words, if there is one."""
    known = getattr(error, "reason", None)
    return str(known).replace("_", " ").lower() if known else str(error)
