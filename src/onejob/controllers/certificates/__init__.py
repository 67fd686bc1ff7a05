"""Signer of approved CertificateSigningRequests."""
