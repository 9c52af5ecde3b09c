"""Tensor parallelism: heads, feed-forward and vocabulary are divided (Shoeybi et al. 2019)."""

from sim.parallel.axis import Axis

AXIS = Axis(name="tp", divides="weights", place=10)
