"""Models as torch modules, kernel by kernel what `sim.model` describes."""
