"""The ground floor: units, errors, and files that become frozen dataclasses."""
