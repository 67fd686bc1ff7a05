"""Local provisioner: a folder of this machine for each PersistentVolume."""
