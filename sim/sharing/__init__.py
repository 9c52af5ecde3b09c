"""Ways to share updates between workers, each a process that reads like its paper's algorithm."""
