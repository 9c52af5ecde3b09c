"""Methods of sharing updates, each a process that reads like its paper."""
