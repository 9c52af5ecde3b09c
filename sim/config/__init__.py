"""Units, errors, and files that become frozen dataclasses."""
