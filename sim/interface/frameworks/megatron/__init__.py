"""How does Megatron-LM write a job?

The tables have entries for model, experts and layout, with the conditions for writing arguments.
The folder can be deleted when Megatron-LM is no longer used.
"""
