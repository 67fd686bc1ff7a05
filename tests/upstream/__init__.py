"""A real Kubernetes to test with, built from the Go module proxy: see README.md."""
