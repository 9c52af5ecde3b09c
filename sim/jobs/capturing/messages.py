"""Objects that ranks tell one another, as pipelines and checkpoints do beside their tensors."""

from importlib import import_module
from typing import Any

from sim.jobs.capturing.exchange import Exchange
from sim.jobs.capturing.patches import Patches


def install(torch: Any, patches: Patches, exchange: Exchange) -> None:
    """Objects between two ranks really travel; what all tell one another is taken to be what this
    rank says itself."""
    c10d = import_module("torch.distributed.distributed_c10d")

    def send(objects: list[Any], dst: int, *_: Any, **__: Any) -> None:
        exchange.meet(dst)
        exchange.send(dst, list(objects))

    def receive(objects: list[Any], src: int, *_: Any, **__: Any) -> int:
        exchange.meet(src)
        objects[:] = exchange.receive(src)
        return src

    def gather(found: list[Any], own: Any, *_: Any, **__: Any) -> None:
        found[:] = [own] * len(found)

    def scatter(found: list[Any], objects: list[Any] | None, *_: Any, **__: Any) -> None:
        found[0] = objects[0] if objects else None

    answers = {
        "send_object_list": send,
        "recv_object_list": receive,
        "all_gather_object": gather,
        "broadcast_object_list": lambda *_, **__: None,
        "scatter_object_list": scatter,
    }
    for name, answer in answers.items():
        for module in (torch.distributed, c10d):
            patches.set(module, name, answer)
