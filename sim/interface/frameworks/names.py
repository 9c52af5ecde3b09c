"""The names of all known training frameworks, as commands take them."""

NAMES = (
    *("megatron", "megatron-bridge", "nemo", "torchtitan", "nanotron", "deepspeed", "accelerate"),
)
LOOPS = ("nemo-rl", "verl")  # frameworks for RL loops of generation and training
