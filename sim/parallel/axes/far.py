"""Groups of `dp` ranks that share states with each other: near ranks have all weights among them.

ZeRO++'s hierarchical partitioning (hpZ, Wang et al. 2023, section 3.2), FSDP2's
`reshard_after_forward` as a number: states are sharded over `dp` x `dp_far` ranks, and what a
forward pass has gathered from all of them stays as a second share in each group (`reshard` =
"near"), so that the backward pass gathers inside it.
"""

from sim.parallel.axis import Axis

AXIS = Axis(name="dp_far", divides="batch", place=35, shards_states=True, far=True)
