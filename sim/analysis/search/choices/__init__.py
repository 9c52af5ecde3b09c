"""What a layout is chosen from, by what of a job a choice decides."""
