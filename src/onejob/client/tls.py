"""TLS contexts of outgoing connections: trusted authorities and client certificates."""

import ssl
import tempfile
from pathlib import Path

from onejob.client.answers import Untrusted
from onejob.client.credentials import Credential
from onejob.client.kubeconfig import Connection
from onejob.wire.errors import Unauthorized


def tls_context(connection: Connection, credential: Credential) -> ssl.SSLContext:
    """Return the TLS context of a connection. Raises Untrusted."""
    try:
        authority = connection.authority.decode() if connection.authority else None
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise Untrusted(
            f"the certificate authority for {connection.server} is not a PEM certificate: {error}"
        ) from error
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credential.certificate:
        # The ssl module reads certificates from files only.
        with tempfile.TemporaryDirectory() as directory:
            pem = Path(directory) / "client.pem"
            pem.touch(mode=0o600)
            pem.write_bytes(credential.certificate + b"\n" + credential.key)
            try:
                context.load_cert_chain(pem)
            except ssl.SSLError as error:
                raise Unauthorized(
                    f"cannot use the client certificate and its key: {error}"
                ) from error
    return context
