"""The settings: what can be set, where it is kept, what it acts on, and the dialog that shows it."""
