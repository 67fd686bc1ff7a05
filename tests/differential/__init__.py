"""The same scenarios on a real Kubernetes and on onejob, compared: see docs/decisions/0020."""
