"""The promises of a Kubernetes API server: verbs, validation, patches, tables, discovery."""
