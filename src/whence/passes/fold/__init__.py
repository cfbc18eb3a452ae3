"""Constants evaluated, and arithmetic folded into weights and biases."""
