"""Ring 3: how questions come in and answers go out: commands, formats, frameworks, pictures."""
