"""Reading container logs: the files of one attempt, or a Pod's logs for `kubectl logs`."""
