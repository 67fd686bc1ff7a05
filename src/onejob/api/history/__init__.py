"""History of Jobs: records of ended Pods that outlive them, written with their removal."""
