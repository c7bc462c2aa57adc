"""Decode files to arrays. All modules except `images` are torch-free."""
