"""Data parallelism: the batch is divided; ZeRO shards states over it (Rajbhandari et al. 2020)."""

from sim.parallel.axis import Axis

AXIS = Axis(name="dp", divides="batch", place=30, shards_states=True)
