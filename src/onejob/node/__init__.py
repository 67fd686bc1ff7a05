"""Node agent (kubelet) and its runtimes: Pods as host processes, Podman containers or
simulations."""
