"""Whatever a contributor adds is one file: each kind is added in a folder of its own here."""
