"""Pipeline parallelism: the layers are divided into stages (Huang et al. 2019)."""

from sim.parallel.axis import Axis

AXIS = Axis(name="pp", divides="layers", place=50)
