"""Jobs side by side: what differs, and why."""
