"""Colors, fonts, fills and icons, light and dark."""
