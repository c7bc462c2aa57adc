"""What is done with a trained model: it is loaded, evaluated, explained, converted, and asked for predictions."""
