"""Live models on a page: what ``clockhands explore`` writes. ``bundle`` holds the built script and style sheet."""
