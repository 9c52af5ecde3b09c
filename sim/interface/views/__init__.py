"""What people read of an answer."""
