"""How fast does a model answer: how many tokens a second, how long does each answer take?

A forward pass has the blocks, kernels and collectives of training (`passes`), but kernels that read
a cache replace attention over a whole sequence. `speed` adds up their seconds, `server` plays
requests on the engine's clock. Nothing in ring 1 needs this folder: without it, scenarios with a
`[generation]` table are unknown.
"""

KEYS = ("generation",)
