"""Pod Security Standards: the Pods that a namespace's labels allow, as in upstream's admission.

`labels` parses the labels of a Namespace, `baseline` and `restricted` define the checks,
`evaluation` selects the checks of a level and version and combines their results.
"""
