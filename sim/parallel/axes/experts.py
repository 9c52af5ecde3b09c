"""Expert parallelism: the experts of a layer are divided (Lepikhin et al. 2020, GShard)."""

from sim.parallel.axis import Axis

AXIS = Axis(name="ep", divides="experts", place=2)
