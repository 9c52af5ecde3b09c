"""Ring 3: how do questions come in, and how do answers go out? The folders hold commands, formats,
frameworks and pictures."""
