"""Controller of PersistentVolumeClaims, PersistentVolumes and ephemeral volumes."""
