"""What did a real step wait for, and how would changes affect it? Traces are played again."""
