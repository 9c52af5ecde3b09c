"""Running a job's training step in torch, and laying it beside its prediction."""
