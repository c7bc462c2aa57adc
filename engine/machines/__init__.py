"""Train runs on several machines, under SLURM or torchrun, and access runs on other machines.

The code for both ends of each connection is in this package.
"""
