"""CertificateSigningRequests: their rules and the requests in them."""
