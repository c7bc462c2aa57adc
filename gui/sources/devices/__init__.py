"""Devices of this machine and of remote hosts: sampling, history and descriptions."""
