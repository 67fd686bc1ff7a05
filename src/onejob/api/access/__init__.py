"""Who somebody is, what they may do, and the secrets and certificates that prove it.

`api.http` asks for each request; nothing here knows of documents or of the store.
"""
