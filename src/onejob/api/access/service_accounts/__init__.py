"""Service-account tokens, signed with a key in the data dir and bound to objects that must exist.

They follow Kubernetes in every respect: JSON Web Tokens (ES256) with the claims of its
service-account issuer, requested through `serviceaccounts/NAME/token`.
"""
