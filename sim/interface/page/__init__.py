"""The report: a page of its own that can be looked around in, without a network."""
