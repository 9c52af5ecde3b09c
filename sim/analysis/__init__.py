"""Ring 3: questions that are asked of jobs of any kind."""
