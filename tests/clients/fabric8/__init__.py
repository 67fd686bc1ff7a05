"""fabric8's Kubernetes client for Java: its informers, waits, sessions and logs."""
