"""Advisor page, which finds the strategy, devices and settings that train a job fastest."""
