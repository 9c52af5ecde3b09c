"""The training frameworks that are known, by the names that commands take."""

NAMES = (
    *("megatron", "megatron-bridge", "nemo", "torchtitan", "nanotron", "deepspeed", "accelerate"),
)
LOOPS = ("nemo-rl", "verl")  # of generation and training
