"""Pod Security levels: which Pods a namespace's labels allow, as upstream's admission decides it.

`labels` reads the labels of a Namespace, `baseline` and `restricted` have the checks, `evaluation`
says which of them a level and version stand for and puts their answers together.
"""
