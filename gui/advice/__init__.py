"""Advisor page: strategy, devices and settings that train a job fastest."""
