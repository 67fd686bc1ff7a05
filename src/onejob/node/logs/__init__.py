"""Reading what containers wrote: one attempt's files, or a Pod's as `kubectl logs` wants them."""
