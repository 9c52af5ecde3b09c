"""Ring 2: other kinds of job than a plan's step. Each is a folder that ring 1 does not know."""
