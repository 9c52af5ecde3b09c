"""What a collective gives where every rank of a group holds the whole numbers that this one does:
counts of tokens by expert, lengths."""

from typing import Any

from sim.capturing.contents import Contents

_INTO = ("_allgather_base_", "alltoall_base_", "_reduce_scatter_base_")  # result first, then source


def agreed(
    torch: Any,
    contents: Contents,
    kind: str,
    name: str,
    named: dict[str, Any],
    ends: tuple[Any, Any],
    *,
    size: int,
    place: int,
) -> None:
    """Keep what the result of a collective holds.

    `named` are its arguments, `ends` those in their order and what it gives, `size` and `place` are
    those of its group and of this rank there.
    """
    args, out = ends
    into = name in _INTO
    source = contents.tensors(args[1] if into else args[0])
    given = contents.tensors(args[0]) if into or not isinstance(out, torch.Tensor) else [out]
    if kind in ("send", "recv", "broadcast") or not len(source) == len(given) == 1:
        return
    real, result = contents.of(source[0]), given[0]
    found = None
    if real is not None:
        with contents.unfaked():
            found = _found(torch, kind, real, named, size, place)
            if found is not None and found.numel() == result.numel():
                found = found.reshape(result.shape)
            else:
                found = None
    contents.keep(result, found)


def _found(
    torch: Any, kind: str, real: Any, named: dict[str, Any], size: int, place: int
) -> Any | None:
    if kind == "all_gather":
        return torch.cat([real] * size)
    if kind == "all_to_all":
        splits = named.get("input_split_sizes") or [len(real) // size] * size
        return torch.cat([real.split(list(splits))[place]] * size)
    if kind in ("all_reduce", "reduce_scatter"):
        real = real * size if _adds(torch, named.get("reduce_op")) else real.clone()
        return real if kind == "all_reduce" else real.chunk(size)[place]
    return None


def _adds(torch: Any, operation: Any) -> bool:
    if isinstance(operation, str):
        return operation == "sum"
    return bool(operation.op() == int(torch.distributed.ReduceOp.RedOpType.SUM))
