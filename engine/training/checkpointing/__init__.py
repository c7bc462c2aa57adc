"""Checkpoints: what is saved, when and where, and how a training goes on from one."""
