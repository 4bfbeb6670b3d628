"""What is said of a measured difference: one judge, declared properties, known faults and their evidence."""
