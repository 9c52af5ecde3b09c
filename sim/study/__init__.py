"""Questions asked of runs: validation, pictures, summaries."""
