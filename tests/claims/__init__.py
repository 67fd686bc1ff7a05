"""PersistentVolumeClaims: decisions, controller, scheduling, mounts and crashes."""
