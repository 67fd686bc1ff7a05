"""Tokens of service accounts: signed by a key in the data dir, bound to objects that must exist.

Everything is as Kubernetes has it: JSON Web Tokens (ES256) with the claims of its
service-account issuer, requested through `serviceaccounts/NAME/token`.
"""
