"""Colors, fonts, fill patterns and icons for the light and dark themes."""
