"""Runs on several machines, under SLURM or torchrun, and access to runs on other machines.

It contains both ends of each connection.
"""
