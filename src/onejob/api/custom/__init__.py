"""Custom resources: CustomResourceDefinitions and what is served because of them.

`structural` reads a schema; `pruning`, `defaulting`, `values` and `rules` apply it to objects;
`definition_checks` judges a CRD itself; `serving` makes it a kind. All but `definitions` is
imported only when there is a CRD.
"""
