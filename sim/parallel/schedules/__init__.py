"""Pipeline schedules by family, one file each: a module whose `SCHEDULES` are found by name."""
