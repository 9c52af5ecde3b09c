"""A scenario: from TOML and names to the job and the machine of a simulation."""
