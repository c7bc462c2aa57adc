"""Alerts: the rules, what they find, and how it is told."""
