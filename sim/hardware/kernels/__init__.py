"""How long does a kernel take on a device?

Tiles and waves for products, rates for the rest; a measured profile takes their place. It goes when
every device has a profile of every shape.
"""
