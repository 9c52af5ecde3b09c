"""Ulysses: the sequence is divided, and in the attention core exchanged for heads (Jacobs et al.
2023); together with `cp` it is USP (Fang and Zhao 2024)."""

from sim.parallel.axis import Axis

AXIS = Axis(name="ulysses", divides="sequence", place=15, shards_states=True)
