"""Runs on several machines, under SLURM or torchrun, and runs of other machines: both ends of each connection."""
