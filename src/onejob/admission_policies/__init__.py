"""Admission policies: CEL expressions that users configure to validate and mutate writes.

`validating` and `mutating` are the plugins of dynamic admission, `definitions` reads policies and
bindings, `params` finds the parameters of a binding, `patches` applies mutations, and
`type_checking` compares expressions with the schemas of the kinds that they are for.
"""
