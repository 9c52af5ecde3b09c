"""Replicas of sharded groups (hybrid sharding): the batch is divided, states are not.

FSDP's HYBRID_SHARD and torchtitan's `data_parallel_replicate_degree` (Zhao et al. 2023, section
3.2.2): ZeRO shards over `dp`, and gradients are then summed over `dp_replicate`.
"""

from sim.parallel.axis import Axis

AXIS = Axis(name="dp_replicate", divides="batch", place=40)
