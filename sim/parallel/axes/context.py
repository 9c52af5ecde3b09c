"""Context parallelism: every sequence is divided (Liu et al. 2023, ring attention)."""

from sim.parallel.axis import Axis

AXIS = Axis(name="cp", divides="sequence", place=20, shards_states=True)
