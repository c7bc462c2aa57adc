"""Advisor that estimates, then measures in short trials, which strategy, devices and settings train a job fastest."""
