"""A Kubernetes API server: verbs, validation, patches, watches, discovery.

`service` has the verbs; `http` and `sessions` put them on connections, `writing` and `reading`
carry them out, `strategies` holds what each kind decides, `access` who may do what. Uses the store
and nothing above itself.
"""
