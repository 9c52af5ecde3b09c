"""The command sim, one file a group of commands."""
