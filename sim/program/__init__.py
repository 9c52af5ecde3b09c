"""The waist: what does each rank do, on which stream, and after which operations?

Strategies in `sim.parallel` write a `Program` and know no clock; `sim.engine` plays a `Program` and
knows no transformer.
"""
