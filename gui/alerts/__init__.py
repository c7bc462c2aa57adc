"""Alerts: rules, detection, views and desktop notifications."""
