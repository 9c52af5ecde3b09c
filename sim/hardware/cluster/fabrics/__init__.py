"""What may join the devices of a node, one a file: its keys, checks and cables."""
