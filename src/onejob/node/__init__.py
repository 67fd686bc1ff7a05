"""The node agent: Pods as local processes, containers or make-believe."""
