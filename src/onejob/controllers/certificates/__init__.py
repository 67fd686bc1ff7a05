"""Signer of approved CertificateSigningRequests, with the authority of the server."""
