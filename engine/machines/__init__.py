"""Runs on several machines, under SLURM or torchrun, and access to runs of other machines.

Both ends of each connection are here.
"""
