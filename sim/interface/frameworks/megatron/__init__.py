"""How does Megatron-LM write a job?

Entries for model, experts and layout, with the conditions under which they are written. It goes
with Megatron-LM.
"""
