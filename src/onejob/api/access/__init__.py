"""Authentication and authorization: credentials, certificates, tokens, RBAC decisions.

`api.http` calls this package once per request. Nothing here depends on documents or the store.
"""
