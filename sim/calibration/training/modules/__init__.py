"""Models of the library as real torch modules, kernel by kernel what `sim.model` describes."""
