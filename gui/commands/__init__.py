"""Menus, command palette and shortcuts of the window, and the dialogs that its commands open."""
