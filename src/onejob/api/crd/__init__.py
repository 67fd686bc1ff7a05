"""Custom resources: CustomResourceDefinitions and the kinds that they define.

`structural` parses a schema; `pruning`, `defaulting`, `values` and `rules` apply it to objects;
`definition_checks` validates a CRD itself; `serving` registers its kinds. All modules except
`definitions` are imported only if a CRD exists.
"""
