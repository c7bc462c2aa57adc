"""What a trained model looks at: heat maps over images of what speaks for a class."""
