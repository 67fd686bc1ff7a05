"""Authentication and authorization: credentials, certificates, tokens, RBAC decisions.

`api.http` calls this package once per request. Only `service_accounts` reads the store, to look up
the objects that tokens are bound to.
"""
