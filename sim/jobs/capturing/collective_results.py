"""What are the results of a collective on whole numbers, such as lengths or each expert's number of
tokens? Every rank is assumed to hold the same numbers as the recorded rank."""

from typing import Any

from sim.jobs.capturing.contents import TensorContents

# Collectives whose first argument is the result, and whose second argument is the input.
_INTO = (
    *("_allgather_base_", "allgather_", "alltoall_base_", "alltoall_"),
    *("_reduce_scatter_base_", "reduce_scatter_"),
)


def keep_results(
    torch: Any,
    contents: TensorContents,
    kind: str,
    name: str,
    named: dict[str, Any],
    ends: tuple[Any, Any],
    *,
    size: int,
    place: int,
) -> None:
    """Keep the content of a collective's results.

    `named` has the collective's arguments by name. `ends` has the arguments in order, and the
    result. `size` is the size of the group, `place` the place of this rank in the group.
    """
    args, out = ends
    if kind in ("send", "recv", "broadcast"):
        return
    results = contents.tensors(out if isinstance(out, torch.Tensor | list) else args[0])
    real = [
        contents.of(tensor) for tensor in contents.tensors(args[1] if name in _INTO else args[0])
    ]
    known = "coalesced" not in name and all(tensor is not None for tensor in real)
    with contents.unfaked():
        found = _found(torch, kind, real, named, size, place) if known else []
        sizes = [tensor.numel() for tensor in results]
        whole = torch.cat([tensor.flatten() for tensor in found]) if found else None
        if whole is None or len(whole) != sum(sizes):
            parts = [None] * len(results)
        else:
            parts = list(whole.split(sizes))
        for result, part in zip(results, parts, strict=True):
            contents.keep(result, None if part is None else part.reshape(result.shape))


def _found(
    torch: Any, kind: str, real: list[Any], named: dict[str, Any], size: int, place: int
) -> list[Any]:
    """The content of the results in order; `real` has a single tensor, or a tensor of each rank."""
    if kind == "all_gather":
        return real * size
    if kind == "all_reduce":
        return [_reduced(torch, real[0], named, size)]
    whole = real[0]
    if kind == "all_to_all":
        splits = named.get("input_split_sizes") or [len(whole) // size] * size
        pieces = real if len(real) > 1 else whole.split(list(splits))
        return [pieces[place]] * size
    pieces = real if len(real) > 1 else whole.chunk(size)
    return [_reduced(torch, pieces[place], named, size)]


def _reduced(torch: Any, real: Any, named: dict[str, Any], size: int) -> Any:
    return real * size if _adds(torch, named.get("reduce_op")) else real


def _adds(torch: Any, operation: Any) -> bool:
    if isinstance(operation, str):
        return operation == "sum"
    return bool(operation.op() == int(torch.distributed.ReduceOp.RedOpType.SUM))
