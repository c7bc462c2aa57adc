"""Devices of this machine and of others."""
