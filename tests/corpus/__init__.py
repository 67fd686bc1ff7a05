"""One manifest, every engine: the same Jobs end the same way as processes, in podman, on Slurm, on
another cluster through the mirror, and on a real Kubernetes whose kubelet is a stand-in."""
