"""Advisor page: strategy, devices and settings with which a job trains fastest."""
