"""Relayed all-to-all of routed items: one copy of an item per node crosses the network, to the GPU
at the sender's place there, which passes it on to all GPUs of the node that want it.

deepseek-ai/DeepEP, README ("normal kernels"): RDMA between GPUs of equal place, NVLink forwarding,
both at the same time; DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.2. Combining goes the same
way back.
"""

from typing import TYPE_CHECKING

from sim.collectives.schedule import GroupShape, LevelLoads

if TYPE_CHECKING:
    from sim.program.routed import Routed


def loads(routed: "Routed", shape: GroupShape) -> LevelLoads:
    """Bytes for each byte of a rank's items.

    Of the r(n) ranks that an item reaches all but 1/g are not the relay: r(n) (g-1)/g pass its
    port. Of the r(m) nodes all but 1/m are not the sender's: g r(m) (m-1)/m leave a node of g.
    """
    n, m, g = shape.ranks, shape.nodes, shape.per_node
    port = routed.reached(n) * (g - 1) / g
    return LevelLoads(port=port, nic=g * routed.reached(m) * (m - 1) / m)
