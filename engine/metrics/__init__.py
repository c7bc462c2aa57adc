"""What validations measure."""
