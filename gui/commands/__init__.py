"""The commands of the whole window: its menus, the palette, the shortcuts, and what each command opens."""
