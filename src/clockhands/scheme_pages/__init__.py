"""What the catalogue tells of each scheme: pages, pictures, costs, schemes left out and laws excused."""
