"""Fields of NeMo's and Megatron-Bridge's configs, and the arguments of Megatron-LM that they are.

Both keep Megatron-Core's own dataclasses (TransformerConfig, DistributedDataParallelConfig,
OptimizerConfig), whose fields Megatron-LM's arguments are named after; Megatron-Bridge translates
between them itself (scripts/translate_mlm_to_bridge.py, ARG_MAP).
"""

import re
from collections.abc import Mapping
from itertools import groupby

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.interface.frameworks.arguments import chosen
from sim.interface.frameworks.documents import Words

_RENAMED = {
    "num_moe_experts": "num-experts",
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "sequence_length": "seq-length",
    "layernorm_epsilon": "norm-epsilon",
    "rope_scaling": "use-rope-scaling",
    "vocab_size": "padded-vocab-size",
    "fp8": "fp8-format",
    "fp4": "fp4-format",
    "num_nodes": "nnodes",
    "devices": "nproc-per-node",
    "num_gpus": "nproc-per-node",
}
_INVERTED = {
    "add_bias_linear": "disable-bias-linear",
    "share_embeddings_and_output_weights": "untie-embeddings-and-output-weights",
}
_FIELDS = {argument: field for field, argument in (_RENAMED | _INVERTED).items()}
_FIELDS["seq-length"] = "seq_length"
_PRECISION = ("bf16", "fp16", "fp8-format", "fp8-recipe", "fp4-format", "fp4-recipe")
_OFF = {("false",), ("0",), ("0.0",), ("none",), ("",), ()}
# Of a precision's name, the recipe of the products of linear layers (training/mixed_precision.py).
_NAMED = {
    "mixed": "",
    "with_fp8_delayed_scaling_mixed": "delayed",
    "with_fp8_current_scaling_mixed": "tensorwise",
    "with_fp8_subchannel_scaling_mixed": "blockwise",
    "with_mxfp8_mixed": "mxfp8",
    "with_nvfp4_mixed": "nvfp4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """Under which keys a framework has fields: patterns of those that it `reads`, later ones hold;
    where it `writes` those of an argument, under `model` unless said; and the key of a precision's
    name, all of which it says where `names_all`."""

    model: str
    precision: str
    reads: tuple[str, ...]
    writes: Mapping[str, str]
    names_all: bool

    def argument(self, key: str) -> str:
        """The argument of Megatron-LM that a key stands for, empty where it is in no section."""
        section, _, field = key.rpartition(".")
        if section and self.order(key) < 0:
            return ""
        field = field.replace("-", "_")
        return (_RENAMED | _INVERTED).get(field) or field.replace("_", "-")

    def key(self, argument: str) -> str:
        """The key that stands for an argument."""
        section = self.writes.get(argument, self.model)
        return f"{section}.{_FIELDS.get(argument) or argument.replace('-', '_')}"

    def ordered(self, words: Words) -> list[tuple[str, tuple[str, ...]]]:
        """Keys and their words, those first that do not hold against others: a precision's name."""
        return sorted(words.items(), key=lambda item: (item[0] != self.precision) *
                      (2 + self.order(item[0])))  # fmt: skip

    def reads_from(self, section: str) -> bool:
        """Whether these are fields of something else than the model."""
        others = section != self.model and any(
            re.fullmatch(pattern, section) for pattern in self.reads
        )
        return not section or others

    def order(self, key: str) -> int:
        """How late a key is read, -1 for one of no section."""
        section = key.rpartition(".")[0]
        found = [i for i, pattern in enumerate(self.reads) if re.fullmatch(pattern, section)]
        return found[0] if found else -1


def arguments(
    words: Words, sections: Sections, known: frozenset[str], switches: frozenset[str]
) -> Words:
    """The arguments that fields stand for, of `switches` also those that are off. What is none that
    is known keeps its key, unless it says that something is off. Raises `InputError` for a
    precision that is not known."""
    found: Words = {}
    for key, values in sections.ordered(_folded(words, sections)):
        argument = sections.argument(key)
        if key == sections.precision:
            found |= _of_a_name(key, values)
        elif argument in _INVERTED.values():
            found |= {argument: ()} if values == ("false",) else {}
        elif argument not in known:
            found |= {} if values in _OFF else {key: values}
        elif values == ("false",):
            found.pop(argument, None)
            found |= {argument: values} if argument in switches else {}
        elif values:
            found[argument] = _counted(values)
    return _derived(found)


def fields(given: Words, sections: Sections, resting: Words) -> Words:
    """The keys that stand for arguments; of those that are not given, some as they rest."""
    words = {sections.key(argument): values for argument, values in resting.items()}
    for argument, values in given.items():
        if argument == "swiglu":
            words |= {f"{sections.model}.gated_linear_unit": ("true",)}
            words |= {f"{sections.model}.activation_func": ("silu",)}
        elif argument == "seq-length":
            words |= {f"{sections.model}.seq_length": values, sections.key(argument): values}
        elif argument not in (*_PRECISION, "group-query-attention", "max-position-embeddings"):
            shown = ("false" if argument in _INVERTED.values() else "true",)
            words[sections.key(argument)] = _spread(values) or shown
    return words | _precision(given, sections)


def _precision(given: Words, sections: Sections) -> Words:
    recipe = (given.get("fp8-recipe") or given.get("fp4-recipe") or ("",))[0]
    plain = next((name for name in ("bf16", "fp16") if name in given), "")
    if not sections.names_all:
        section = sections.precision.rpartition(".")[0]
        name = {"bf16": "bf16-mixed", "fp16": "16-mixed", "": "32"}[plain]
        low = {argument: given[argument] for argument in _PRECISION[2:] if argument in given}
        fields = {
            f"{section}.{_FIELDS.get(name) or name.replace('-', '_')}": low[name] for name in low
        }
        return {sections.precision: (name,), **fields}
    if not plain:
        raise InputError("plan.precision", "fp32 has no name there", "take bf16, fp16, fp8 or fp4")
    rest = next(name for name, own in _NAMED.items() if own == recipe)
    return {sections.precision: (f"{plain}_{rest}",)}


def _folded(words: Words, sections: Sections) -> Words:
    """Functions and types, tables with a `_target_`, as the last part of their name; of sections
    that of the model's."""
    found: Words = {}
    for key, values in words.items():
        path, _, last = key.rpartition(".")
        if last == "_target_" and not sections.reads_from(path):
            found[path] = (values[0].rpartition(".")[2],)
        elif not last.startswith("_"):
            found[key] = tuple(value.removeprefix("torch.") for value in values)
    return found


def _counted(values: tuple[str, ...]) -> tuple[str, ...]:
    """Zeros and ones, layers without and with experts, as Megatron-LM has them on its command line.

    >>> _counted(("0", "1", "1")), _spread(("([0]*1+[1]*2)",))
    (('[0]*1+[1]*2',), ('0', '1', '1'))
    """
    if len(values) < 2 or set(values) - {"0", "1"}:
        return values
    runs = ((value, len(list(alike))) for value, alike in groupby(values))
    return ("+".join(f"[{value}]*{often}" for value, often in runs),)


def _spread(values: tuple[str, ...]) -> tuple[str, ...]:
    runs = re.findall(r"\[([01])\]\*(\d+)", values[0]) if values else []
    return tuple(kind for kind, often in runs for _ in range(int(often))) or values


def _of_a_name(key: str, values: tuple[str, ...]) -> Words:
    """The precision that `bf16_mixed` and its kin name; those of bf16 reduce gradients in fp32."""
    name = values[0].replace("-", "_")
    if name in ("32", "32_true", "fp32"):
        return {}
    name = f"fp{name}" if name.startswith("16_") else name
    known = {f"{plain}_{rest}": (plain, own) for plain in ("bf16", "fp16")
             for rest, own in _NAMED.items()}  # fmt: skip
    plain, recipe = chosen({key: (name,)}, key, known, "")
    low = "fp4" if recipe == "nvfp4" else "fp8"
    own: Words = {f"{low}-format": ("hybrid",), f"{low}-recipe": (recipe,)} if recipe else {}
    reduced: Words = {"grad-reduce-in-fp32": ()} if plain == "bf16" else {}
    return {plain: (), **own, **reduced}


DERIVED = ("gated-linear-unit", "activation-func", "should-pad-vocab")  # and read here only


def _derived(given: Words) -> Words:
    """Values that Megatron-LM states by arguments of its own."""
    own = {name: values for name, values in given.items() if name not in DERIVED}
    if "gated-linear-unit" in given:
        own["swiglu"] = ()
    if "num-query-groups" in given:
        own["group-query-attention"] = ()
    if "should-pad-vocab" in given and "padded-vocab-size" in given:
        own["vocab-size"] = own.pop("padded-vocab-size")
    return own
