"""What a simulation answers, and the text and pages that people read."""
