"""Kubernetes API server: verbs, validation, patches, watches, discovery.

`service` implements the verbs; `http` and `sessions` expose them on connections; `writing` and
`reading` execute them; `strategies` holds the validation and defaulting rules of each kind;
`access` holds authentication and authorization. This package depends on the store and on nothing
above itself.
"""
