"""Colours, fonts, fills and icons, light and dark."""
