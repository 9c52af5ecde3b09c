"""Translate fields of NeMo's and Megatron-Bridge's configs to arguments of Megatron-LM, and back.

Both use Megatron-Core's dataclasses (TransformerConfig, DistributedDataParallelConfig,
OptimizerConfig). Megatron-LM's arguments are named after the fields of these dataclasses.
Megatron-Bridge has its own translation (scripts/translate_mlm_to_bridge.py, ARG_MAP).
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
    "microbatch_group_size_per_vp_stage": "microbatch-group-size-per-virtual-pipeline-stage",
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
# The fp8 or fp4 recipe of linear layers, by a precision's name (training/mixed_precision.py).
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
    """The sections of a framework's config that hold Megatron-Core's fields.

    `reads` has patterns of section names; a field in a later section wins. `writes` gives the
    section for an argument; the default is `model`. `precision` is the key whose value is the name
    of a precision. If `names_all`, that name also tells the fp8 or fp4 recipe.
    """

    model: str
    precision: str
    reads: tuple[str, ...]
    writes: Mapping[str, str]
    names_all: bool

    def argument(self, key: str) -> str:
        """Return the argument of Megatron-LM for a key, "" if the key is in no section."""
        section, _, field = key.rpartition(".")
        if section and self.order(key) < 0:
            return ""
        field = field.replace("-", "_")
        return (_RENAMED | _INVERTED).get(field) or field.replace("_", "-")

    def key(self, argument: str) -> str:
        """Return the key for an argument."""
        section = self.writes.get(argument, self.model)
        return f"{section}.{_FIELDS.get(argument) or argument.replace('-', '_')}"

    def ordered(self, words: Words) -> list[tuple[str, tuple[str, ...]]]:
        """Return keys and words in order of precedence; later keys win. A precision's name is
        first."""
        return sorted(words.items(), key=lambda item: (item[0] != self.precision) *
                      (2 + self.order(item[0])))  # fmt: skip

    def reads_from(self, section: str) -> bool:
        """Whether a section is read and is not the model's."""
        others = section != self.model and any(
            re.fullmatch(pattern, section) for pattern in self.reads
        )
        return not section or others

    def order(self, key: str) -> int:
        """Return the position of a key's section in `reads`, -1 if the key is in no section."""
        section = key.rpartition(".")[0]
        found = [i for i, pattern in enumerate(self.reads) if re.fullmatch(pattern, section)]
        return found[0] if found else -1


def arguments(
    words: Words, sections: Sections, known: frozenset[str], switches: frozenset[str]
) -> Words:
    """Return the arguments for fields. Arguments in `switches` are also returned if they are false.
    A field without a `known` argument keeps its key, unless its value is false, zero or empty.
    Raises `InputError` for an unknown precision."""
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
    """Return the keys for arguments. `resting` has the words of arguments that are not given."""
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
    rest = next(name for name, value in _NAMED.items() if value == recipe)
    return {sections.precision: (f"{plain}_{rest}",)}


def _folded(words: Words, sections: Sections) -> Words:
    """Replace a function or type, which is a table with a `_target_`, by the last part of its name.
    Of the sections in `reads`, this is done only for the model's."""
    found: Words = {}
    for key, values in words.items():
        path, _, last = key.rpartition(".")
        if last == "_target_" and not sections.reads_from(path):
            found[path] = (values[0].rpartition(".")[2],)
        elif not last.startswith("_"):
            found[key] = tuple(value.removeprefix("torch.") for value in values)
    return found


def _counted(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return a list of 0 and 1 (layers without and with experts) in the form of Megatron-LM's
    command line.

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
    """Return the arguments for a precision's name, such as `bf16_mixed`. With bf16, gradients are
    reduced in fp32."""
    name = values[0].replace("-", "_")
    if name in ("32", "32_true", "fp32"):
        return {}
    name = f"fp{name}" if name.startswith("16_") else name
    known = {f"{plain}_{rest}": (plain, recipe) for plain in ("bf16", "fp16")
             for rest, recipe in _NAMED.items()}  # fmt: skip
    plain, recipe = chosen({key: (name,)}, key, known, "")
    low = "fp4" if recipe == "nvfp4" else "fp8"
    formats: Words = {f"{low}-format": ("hybrid",), f"{low}-recipe": (recipe,)} if recipe else {}
    reduced: Words = {"grad-reduce-in-fp32": ()} if plain == "bf16" else {}
    return {plain: (), **formats, **reduced}


DERIVED = ("gated-linear-unit", "activation-func", "should-pad-vocab")  # `_derived` reads them


def _derived(given: Words) -> Words:
    """Replace fields that are no arguments of Megatron-LM by the arguments that have their
    meaning."""
    words = {name: values for name, values in given.items() if name not in DERIVED}
    if "gated-linear-unit" in given:
        words["swiglu"] = ()
    if "num-query-groups" in given:
        words["group-query-attention"] = ()
    if "should-pad-vocab" in given and "padded-vocab-size" in given:
        words["vocab-size"] = words.pop("padded-vocab-size")
    return words
