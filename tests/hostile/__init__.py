"""A real `onejob serve` and people who mean it harm: clients, other users of the machine, Pods."""
