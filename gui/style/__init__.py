"""Colors, fonts, fills and icons for light and dark themes."""
