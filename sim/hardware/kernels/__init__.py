"""How long a kernel takes on a device: models, and profiles that were measured."""
