"""The axes that training frameworks have, fastest-varying first."""

from sim.parallel.mesh import Axis

AXES = (
    # The matrices of each expert are divided (Megatron-Core's `expert_tensor_parallel_size`).
    Axis(name="etp", divides="experts", place=1),
    # The experts of a layer are divided (Lepikhin et al. 2020, GShard).
    Axis(name="ep", divides="experts", place=2),
    # Heads, feed-forward and vocabulary are divided (Shoeybi et al. 2019).
    Axis(name="tp", divides="weights", place=10),
    # The sequence is divided, and in the attention core exchanged for heads (Jacobs et al. 2023);
    # together with `cp` it is USP (Fang and Zhao 2024).
    Axis(name="ulysses", divides="sequence", place=15, shards_states=True),
    # Every sequence is divided (Liu et al. 2023, ring attention).
    Axis(name="cp", divides="sequence", place=20, shards_states=True),
    # The batch is divided; ZeRO shards states over it (Rajbhandari et al. 2020).
    Axis(name="dp", divides="batch", place=30, shards_states=True),
    # ZeRO++'s hierarchical partitioning (hpZ, Wang et al. 2023, section 3.2), FSDP2's
    # `reshard_after_forward` as a number: states are sharded over `dp` x `dp_hpz` ranks, and what a
    # forward pass has gathered from all of them stays as a second share in each group of `dp` ranks
    # (`reshard` = "near"), so that the backward pass gathers inside it.
    Axis(name="dp_hpz", divides="batch", place=35, shards_states=True, far=True),
    # Replicas of sharded groups: FSDP's HYBRID_SHARD, torchtitan's `data_parallel_replicate_degree`
    # (Zhao et al. 2023, section 3.2.2). ZeRO shards over `dp`, and gradients are then summed here.
    Axis(name="dp_replicate", divides="batch", place=40),
    # The layers are divided into stages (Huang et al. 2019).
    Axis(name="pp", divides="layers", place=50),
)
