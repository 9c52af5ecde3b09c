"""What a contributor adds is one file: each kind of addition is made in a folder of its own here."""
