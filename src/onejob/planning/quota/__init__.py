"""What a namespace may use: LimitRanges (each container, each Pod) and ResourceQuotas (all
together), as upstream's admission plugins decide it."""
