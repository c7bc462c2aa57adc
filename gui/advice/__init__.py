"""The page that advises on strategy, devices and settings."""
