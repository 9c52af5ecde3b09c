"""How is a Chakra execution trace (Sridharan et al. 2023) written? ASTRA-sim plays one per rank.

A file holds a `GlobalMetadata` and then `Node`s. The length of each, a varint, comes before it
(mlcommons/chakra, schema/protobuf/et_def.proto; src/third_party/utils/protolib.py). The size of a
collective is the bytes that each rank contributes: an all-gather ends with `data_size *
nodes_in_ring` (astra-sim, system/astraccl/native_collectives/collective_algorithm/Ring.cc). The
members of process groups lie beside the traces, as `--comm-group-configuration` reads them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

from sim.config import reads
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.files import atomic_write

Kind = Literal["load", "store", "compute", "send", "receive", "collective"]
_KINDS: dict[Kind, int] = {kind: number for number, kind in enumerate(get_args(Kind), 2)}
_NAMES = {number: kind for kind, number in _KINDS.items()}
COLLECTIVES = {
    "all_reduce": 0,
    "reduce": 1,
    "all_gather": 2,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
}
_VERSION = "0.0.4"
BESIDE = "kernels_beside"  # seconds of kernels beside a collective; only `sim` reads this attribute
_VALUES = ("int64_val", "int32_val", "uint64_val", "uint32_val", "bool_val", "string_val",
           "double_val", "float_val")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation of a rank. It begins when the operations whose numbers are in `after` have
    ended.

    A trace counts in whole microseconds. Chakra's `attributes` are `comm_type`, `comm_size`,
    `pg_name`, `comm_src`, `comm_dst`, `comm_tag`, `num_ops`, `is_cpu_op`, and `BESIDE`.
    """

    number: int
    name: str
    kind: Kind
    microseconds: int = 0
    after: tuple[int, ...] = ()
    attributes: Mapping[str, int | bool | str | float] = field(default_factory=dict)


def write(path: Path, nodes: Iterable[Node]) -> None:
    """Write one rank's trace atomically. Raises `InputError` without protobuf."""
    head = _messages()["GlobalMetadata"](version=_VERSION)
    from google.protobuf import proto

    with atomic_write(path) as part, part.open("wb") as file:
        for message in chain([head], map(_message, nodes)):
            proto.serialize_length_prefixed(message, file)


def read(path: Path) -> list[Node]:
    """One rank's trace, without kinds of nodes that a replay does not use. Raises `InputError` for
    a file that is no trace, and without protobuf."""
    messages = _messages()
    from google.protobuf import message, proto

    data, kind, nodes = BytesIO(reads.content(path)), "GlobalMetadata", list[Node]()
    try:
        while part := proto.parse_length_prefixed(messages[kind], data):
            if kind == "Node" and part.type in _NAMES:
                nodes.append(_node(part))
            kind = "Node"
    except (message.DecodeError, ValueError, OverflowError) as error:
        fault = f"is cut short or does not fit Chakra's schema before byte {data.tell()} ({error})"
        raise _wrong(path, fault) from None
    if not nodes:
        raise _wrong(path, "holds no operations")
    return nodes


def write_groups(path: Path, groups: Mapping[int, Iterable[int]]) -> None:
    """Write the members of process groups."""
    with atomic_write(path) as part:
        part.write_text(
            json.dumps({str(group): list(members) for group, members in groups.items()})
        )


def read_groups(path: Path) -> dict[str, list[int]]:
    """Members of process groups by name. Raises `InputError` for any other content."""
    try:
        known = json.loads(reads.text(path))
    except (ValueError, RecursionError):
        known = None
    if not isinstance(known, dict) or not all(map(_is_group, known.values())):
        remedy = 'write {"0": [0, 1, 2, 3]}'
        raise InputError(str(path), "does not list the ranks of each group", remedy)
    return known


def _is_group(members: Any) -> bool:
    """Whether `members` is a list of ranks without repetition."""
    ranks = isinstance(members, list) and all(type(rank) is int and rank >= 0 for rank in members)
    return ranks and 0 < len(set(members)) == len(members)


def _message(node: Node) -> Any:
    messages = _messages()
    return messages["Node"](
        id=node.number,
        name=node.name,
        type=_KINDS[node.kind],
        duration_micros=node.microseconds,
        ctrl_deps=node.after,
        attr=[_attribute(name, value) for name, value in node.attributes.items()],
    )


def _attribute(name: str, value: float | str) -> Any:
    kinds = {bool: "bool_val", int: "int64_val", str: "string_val", float: "double_val"}
    return _messages()["AttributeProto"](name=name, **{kinds[type(value)]: value})


def _node(message: Any) -> Node:
    found = {
        attribute.name: value
        for attribute in message.attr
        if (value := _value(attribute)) is not None
    }
    return Node(
        number=message.id,
        name=message.name,
        kind=_NAMES[message.type],
        microseconds=message.duration_micros,
        after=tuple(sorted({*message.ctrl_deps, *message.data_deps})),
        attributes=found,
    )


def _value(attribute: Any) -> Any:
    """The value of an attribute; None if `sim` does not read values of its kind."""
    known = attribute.WhichOneof("value")
    return getattr(attribute, known) if known in _VALUES else None


def _wrong(path: Path, fault: str) -> InputError:
    return InputError(str(path), fault, "give a Chakra execution trace (RANK.et)")


# --- The schema, as far as it is needed; protobuf skips other fields ------------------------------

_FIELDS: dict[str, list[tuple[str, int, str]]] = {
    "GlobalMetadata": [("version", 1, "string")],
    "AttributeProto": [
        ("name", 1, "string"), ("double_val", 3, "double"), ("float_val", 5, "float"),
        ("int32_val", 7, "int32"), ("int64_val", 9, "int64"), ("uint32_val", 11, "uint32"),
        ("uint64_val", 13, "uint64"), ("bool_val", 27, "bool"), ("string_val", 29, "string"),
    ],
    "Node": [
        ("id", 1, "uint64"), ("name", 2, "string"), ("type", 3, "int32"),
        ("ctrl_deps", 4, "uint64*"), ("data_deps", 5, "uint64*"), ("duration_micros", 7, "uint64"),
        ("attr", 10, "AttributeProto*"),
    ],
}  # fmt: skip


@cache
def _messages() -> Mapping[str, Any]:
    """Protobuf's classes of messages by name."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        remedy = "pip install 'clustersim[chakra]'"
        raise InputError("Chakra traces", "need protobuf", remedy) from None
    package = "ChakraProtoMsg"
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package=package, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field_name, number, kind in fields:
            entry = message.field.add(name=field_name, number=number)
            entry.label = entry.LABEL_REPEATED if kind.endswith("*") else entry.LABEL_OPTIONAL
            if (inner := kind.rstrip("*")) in _FIELDS:
                entry.type, entry.type_name = entry.TYPE_MESSAGE, f".{package}.{inner}"
            else:
                entry.type = getattr(entry, f"TYPE_{inner.upper()}")
            if field_name.endswith("_val"):
                entry.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in _FIELDS
    }
