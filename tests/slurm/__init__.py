"""Slurm runtime: with stand-ins for Slurm's commands everywhere, and with a real Slurm after `make
slurm`."""
