"""The waist: what each rank does, on which stream, after what.

Strategies in `sim.parallel` write a `Program` and know no clock; `sim.engine` plays one and knows
no transformer.
"""
