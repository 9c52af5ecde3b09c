"""Relayed all-to-all of routed items, such as tokens for experts.

One copy of an item goes to each node that wants it, to the GPU with the sender's slot in that node.
That GPU relays the item to all GPUs of its node that want it. Results return the same way.
Sources: deepseek-ai/DeepEP, README ("normal kernels": RDMA and NVLink forwarding at the same time);
DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.2.
"""

from typing import TYPE_CHECKING

from sim.collectives.schedule import GroupShape, LevelLoads

if TYPE_CHECKING:
    from sim.program.routed import Routed


def loads(routed: "Routed", shape: GroupShape) -> LevelLoads:
    """Port and NIC bytes for each byte of a rank's items, with n ranks on m nodes of g ranks.

    An item reaches r(n) ranks (`Routed.reached`). Of these, 1/g are relays, so r(n) (g-1)/g copies
    pass a port. It reaches r(m) nodes, 1/m of them the sender's own: g r(m) (m-1)/m leave a node.
    """
    n, m, g = shape.ranks, shape.nodes, shape.per_node
    port = routed.reached(n) * (g - 1) / g
    return LevelLoads(port=port, nic=g * routed.reached(m) * (m - 1) / m)
