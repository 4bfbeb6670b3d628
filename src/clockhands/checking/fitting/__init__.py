"""What a difference comes from: angles, biases, masks and positions, fitted to what attention computed."""
