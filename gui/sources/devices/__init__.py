"""Devices of this machine and of other hosts: sampling, history and descriptions."""
