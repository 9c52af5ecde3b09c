"""The axes that training frameworks have, fastest-varying first."""

from sim.parallel.mesh import Axis

AXES = (
    # The matrices of each expert are divided (Megatron-Core's `expert_tensor_parallel_size`).
    Axis(name="etp", divides="experts", place=1),
    # The experts of a layer are divided (Lepikhin et al. 2020, GShard).
    Axis(name="ep", divides="experts", place=2),
    # Heads, feed-forward and vocabulary are divided (Shoeybi et al. 2019).
    Axis(name="tp", divides="weights", place=10),
    # The sequence is divided, and exchanged for heads in the attention core (Jacobs et al. 2023).
    # Together with `cp` this axis is USP (Fang and Zhao 2024).
    Axis(name="ulysses", divides="sequence", place=15, shards_states=True),
    # Every sequence is divided (Liu et al. 2023, ring attention).
    Axis(name="cp", divides="sequence", place=20, shards_states=True),
    # The batch is divided; ZeRO shards states over it (Rajbhandari et al. 2020).
    Axis(name="dp", divides="batch", place=30, shards_states=True),
    # ZeRO++'s hierarchical partitioning (hpZ, Wang et al. 2023, section 3.2), or FSDP2's
    # `reshard_after_forward` as a number. States are sharded over `dp` x `dp_hpz` ranks. After the
    # forward pass each group of `dp` ranks keeps a second set of shares of the weights (`reshard` =
    # "near"), so the backward pass gathers inside the group.
    Axis(name="dp_hpz", divides="batch", place=35, shards_states=True, far=True),
    # Replicas of sharded groups: FSDP's HYBRID_SHARD, torchtitan's `data_parallel_replicate_degree`
    # (Zhao et al. 2023, section 3.2.2). ZeRO shards over `dp`; this axis sums gradients afterwards.
    Axis(name="dp_replicate", divides="batch", place=40),
    # The layers are divided into stages (Huang et al. 2019).
    Axis(name="pp", divides="layers", place=50),
)
