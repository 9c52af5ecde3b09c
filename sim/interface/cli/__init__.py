"""The command `sim`: a file for each of its commands, or for a family of them."""
