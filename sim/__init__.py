"""One seed, one world: the real control plane in virtual time, with faults from a seeded dice."""
