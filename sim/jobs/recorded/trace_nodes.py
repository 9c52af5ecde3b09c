"""What is in a PyTorch execution trace (`torch.profiler.ExecutionTraceObserver`, schema 1.0, 1.1)?

A node is a call: of an operator (with its schema and tensors), a module, autograd or a collective.
A tensor is written as [tensor, storage, offset, elements, bytes of an element, device]
(torch/csrc/profiler/standalone/execution_trace_observer.cpp). Nodes of schema 1.0.1 have no
`attrs`: their attributes, and the values, shapes and types of tensors, are keys of the node itself.
"""

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.recorded.recording import Tensor, covered

SCHEMAS = ("1.0.", "1.1.")
REMEDY = "give a complete trace by torch.profiler.ExecutionTraceObserver of torch 2.0 or later"
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
ENGINE = "autograd::engine::evaluate_function"
CHECKPOINT = "CheckpointFunction"
FROM_OUTSIDE = (ENGINE, "Optimizer.")  # backward functions never call these
_MOST = 1 << 50  # sizes and numbers in a trace are smaller


def is_trace(document: Any) -> bool:
    """Whether a document is an execution trace."""
    return isinstance(document, dict) and {"schema", "nodes"} <= document.keys()


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor, the number of its storage, and whether the storage is on a GPU."""

    tensor: Tensor
    storage: int
    on_gpu: bool


@dataclass(frozen=True)
class Node:
    """A call. `parent` is the number of the enclosing call, which is below the call's own `number`
    (0: none). `given` and `made` are its arguments and results; tensors are `Operand`s, lists of
    tensors are tuples."""

    number: int
    parent: int
    name: str
    schema: str
    given: tuple[Any, ...]
    made: tuple[Any, ...]
    attributes: Mapping[str, Any]

    @property
    def operator(self) -> str:
        """The name in its schema, such as "aten.mm"; empty for calls without a schema."""
        return self.schema.partition("(")[0].split(".")[0].replace("::", ".", 1)

    @cached_property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """The type and name of each argument of its schema.

        >>> Node(1, 0, "", "aten::f(Tensor(a!) self, int[2] at=[1, 1], *, bool b=1) -> Tensor(a!)",
        ...      (), (), {}).arguments
        (('Tensor(a!)', 'self'), ('int[2]', 'at'), ('bool', 'b'))
        """
        inside = self.schema.partition(" -> ")[0].partition("(")[2].removesuffix(")")
        parts = (part.partition("=")[0].strip() for part in _apart(inside))
        pairs = (part.rpartition(" ") for part in parts if part and part != "*")
        return tuple((kind, name) for kind, _, name in pairs)

    def argument(self, name: str) -> Any:
        """The value of an argument; None if the call has no argument of this name."""
        named = zip(self.arguments, self.given, strict=False)
        return next((value for (_, key), value in named if key == name), None)

    @property
    def written(self) -> list[Operand]:
        """The tensors that the call changes in place."""
        named = zip(self.arguments, self.given, strict=False)
        return [operand for (kind, _), value in named if "!" in kind for operand in operands(value)]

    @property
    def is_view(self) -> bool:
        """Whether the call returns its argument, perhaps with another shape."""
        returned = self.schema.partition(" -> ")[2]
        return "(a)" in returned and "!" not in self.schema


def operands(value: Any) -> Iterator[Operand]:
    """Yield the tensors in an argument or result."""
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from operands(item)


def nodes_of(document: Mapping[str, Any], where: str) -> list[Node]:
    """All nodes in the order of their calls. Raises `InputError` for an incomplete trace or another
    document."""
    if not str(document.get("schema")).startswith(SCHEMAS):
        fault = f"has schema {str(document.get('schema'))[:40]!r}, which is not known"
        raise InputError(where, fault, REMEDY)
    rows = document["nodes"]
    found = {}
    for place, row in enumerate(rows if isinstance(rows, list) else [None]):
        try:
            node = _node(row)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise InputError(
                f"{where}, node {place}", "is no node of an execution trace", REMEDY
            ) from None
        found[node.number] = node
    return list(_ended([found[number] for number in sorted(found)]))


def _ended(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes with the `parent`s that they had in the run.

    The observer misses the end of calls that end by an exception. Calls of a checkpoint do so when
    everything needed is recomputed (torch/utils/checkpoint.py, `_StopRecomputationError`). The last
    operators of such a call are missing. The trace places all later calls inside the backward
    function that made the call. Apart from reentrant checkpoints, backward functions do not call
    the engine, so a call of the engine inside a backward function shows the error.
    """
    known: dict[int, Node] = {}
    numbers = [node.number for node in nodes]
    within: dict[int, int] = {}  # by parent in the trace: the true parent
    for node in nodes:
        number = within.get(node.parent, node.parent)
        if number and number not in known:
            number = within[node.parent] = _around(numbers[bisect(numbers, number) - 1], known)
        above = known.get(number)
        if above and node.name.startswith(FROM_OUTSIDE) and CHECKPOINT not in above.name:
            engine = known.get(above.parent)
            if engine is not None and engine.name.startswith(ENGINE):
                number = within[node.parent] = within[above.number] = engine.parent
        known[node.number] = replace(node, parent=number)
        yield known[node.number]


def _around(number: int, known: Mapping[int, Node]) -> int:
    """The number of the innermost call without a schema: the node itself, or a call around it."""
    while number in known and known[number].schema:
        number = known[number].parent
    return number


def _node(row: Mapping[str, Any]) -> Node:
    row = row if "attrs" in row else _as_of_1_1(row)
    attributes = {attribute["name"]: attribute.get("value") for attribute in row["attrs"]}
    number, parent = _count(row["id"]), _count(row["ctrl_deps"])
    return Node(
        number=number,
        parent=parent if parent < number else 0,
        name=str(row["name"]),
        schema=str(attributes.get("op_schema") or ""),
        given=_values(row["inputs"]),
        made=_values(row["outputs"]),
        attributes=attributes,
    )


def _as_of_1_1(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node of schema 1.0.1 as later schemas write it."""
    sides = {
        f"{side}s": {
            "values": row[f"{side}s"],
            "shapes": row[f"{side}_shapes"],
            "types": row[f"{side}_types"],
        }
        for side in ("input", "output")
    }
    attributes = [{"name": name, "value": row.get(name)} for name in ("op_schema", "seq_id")]
    return {**row, **sides, "ctrl_deps": row["parent"], "attrs": attributes}


def _values(side: Mapping[str, Any]) -> tuple[Any, ...]:
    values, shapes, kinds = side["values"], side["shapes"], side["types"]
    strides = side.get("strides") or [[] for _ in values]
    rows = zip(values, shapes, kinds, strides, strict=True)
    return tuple(_value(*row) for row in rows)


def _value(value: Any, shape: Any, kind: str, stride: Any) -> Any:
    if kind.startswith("Tensor("):
        return _operand(value, shape, kind[7:-1], stride)
    if kind.startswith("GenericList[") and "Tensor(" in kind:
        inner = list(_apart(kind[12:-1]))
        rows = zip(value, shape, inner, stride or [[] for _ in inner], strict=True)
        return tuple(_value(item, sizes, of.strip(), step) for item, sizes, of, step in rows)
    return value


def _operand(value: Any, shape: Any, dtype: str, stride: Any) -> Operand:
    sizes = tuple(map(_count, shape))
    steps = list(stride) if len(stride) == len(sizes) else [1] * len(sizes)
    tensor = Tensor(
        dtype=DTYPES.get(dtype, dtype),
        width=float(_count(value[4])),
        shape=sizes,
        elements=covered(sizes, steps),
    )
    if tensor.bytes > _MOST:
        raise ValueError
    on_gpu = any(str(device).startswith("cuda") for device in value[5:6])  # 1.0.1 may lack it
    return Operand(tensor, _count(value[1]), on_gpu)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError
    return value


def _apart(text: str) -> Iterator[str]:
    """The parts of a text between commas outside of brackets."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]
