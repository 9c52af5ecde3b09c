"""Expert tensor parallelism: the matrices of each expert are divided (Megatron-Core's
`expert_tensor_parallel_size`)."""

from sim.parallel.axis import Axis

AXIS = Axis(name="etp", divides="experts", place=1)
