"""Running a job's training step in torch, and comparing it with its prediction."""
