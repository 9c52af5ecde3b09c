"""What capturing a training script costs, and what is learned: the table of docs/capture.md.

    python -m benchmarks.captures [NAME ...]

Scripts of `benchmarks/captured` and torchtitan's own `train.py`, which is left out where it is not
installed (`pip install torchtitan==0.2.2 transformers`). CPU seconds of all processes, and the most
memory of one of them, by the system's accounts; they depend on the machine and are not asserted
anywhere.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import sim

HERE = Path(__file__).parent
TITAN = (
    *("--model.name", "llama3", "--model.flavor", "8B", "--model.hf_assets_path", "tokenizer"),
    *("--training.dataset", "c4_test", "--training.dataset_path", "./reading"),
    *("--training.steps", "3"),
)


@dataclass(frozen=True)
class Case:
    """A script ("torchtitan" for that of the package) with its arguments, in a world of ranks."""

    about: str
    script: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    world: int = 64
    topology: str = "dgx-h100-ndr"
    stack: str = "pytorch-eager"


_TP = ("--training.local_batch_size", "1", "--training.seq_len", "8192")
_PP = ("--training.local_batch_size", "8", "--training.seq_len", "4096")
_STAGES = (
    *("--parallelism.pipeline_parallel_degree", "4"),
    *("--parallelism.pipeline_parallel_schedule", "InterleavedZeroBubble"),
    *("--activation_checkpoint.mode", "none"),
)
GPT = Case(
    "GPT-2 as nanoGPT trains it (DDP, its first evaluation of 400 batches included)",
    *("gpt2_ddp.py",), world=8, topology="dgx-a100-hdr",
)  # fmt: skip
CASES = {
    "nanogpt": GPT,
    "compiled": Case(
        "the same, `torch.compile`d", GPT.script, ("compile",), world=8, topology=GPT.topology
    ),
    "llama": Case(
        "Llama 3 8B of transformers, FSDP2, layers recomputed",
        *("transformers_fsdp2.py", ("llama",)), world=512,
    ),
    "titan-tp": Case(
        "torchtitan's Trainer, 8B, TP 8",
        "torchtitan",
        (*TITAN, *_TP, "--parallelism.tensor_parallel_degree", "8"),
        stack="torchtitan-eager",
    ),
    "titan-compiled": Case(
        "the same, `--compile.enable`",
        "torchtitan",
        (*TITAN, *_TP, "--parallelism.tensor_parallel_degree", "8", "--compile.enable"),
        stack="torchtitan-compile",
    ),
    "titan-pp": Case(
        "the same, eager, 4 stages, interleaved zero bubble, `--stages`",
        *("torchtitan", (*TITAN, *_PP, *_STAGES), ("--stages",)),
        stack="torchtitan-eager",
    ),
    "mixtral": Case(
        "Mixtral 8x7B of transformers, FSDP2, `--routing zipf=0.5`",
        *("transformers_fsdp2.py", ("mixtral",), ("--routing", "zipf=0.5")),
    ),
}  # fmt: skip


def row(case: Case, folder: Path) -> str:
    """The case's row of the table."""
    script = HERE / "captured" / case.script
    if case.script == "torchtitan":
        found = find_spec("torchtitan")
        if found is None or found.origin is None:
            return f"| {case.about} | torchtitan is not installed |"
        script = Path(found.origin).parent / "train.py"
        _texts(folder)
        load = "from datasets import load_dataset; load_dataset('./reading', split='train')"
        _run([sys.executable, "-c", load], folder)  # else four ranks would do it at once
    out = folder / "record.json.gz"
    command = [sys.executable, "-m", "sim", "capture", str(script), "--world", str(case.world)]
    own = [*command, *case.options, "--out", str(out), "--", *case.arguments]
    seconds, memory = _run(own, folder)
    if not out.exists():
        return f"| {case.about} | failed: {(folder / 'said').read_text().splitlines()[-1]} |"
    played = sim.run(
        sim.RecordedScenario(record=str(out), topology=case.topology, stack=case.stack)
    )
    cells = (
        case.about,
        f"{case.world} {case.topology.split('-')[1].upper()}",
        f"{seconds:.0f} s",
        f"{memory / 2**30:.1f} GiB",
        f"{1e3 * played.step_time:.0f} ms",
        f"{played.mfu:.0%}",
        f"{played.memory_per_gpu['total'] / 2**30:.1f} GiB",
    )
    return f"| {' | '.join(cells)} |"


def _run(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """CPU seconds of a process and all that it starts, and the most bytes of one of them."""
    alone = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder)}
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent), *sys.path]))}
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **alone, **paths}, stdout=said, stderr=said
        )
        _, _, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime, 1024.0 * used.ru_maxrss


def _texts(folder: Path) -> None:
    """A tokenizer of letters and something to read, for torchtitan."""
    letters = ["<|begin_of_text|>", "<|end_of_text|>", *"abcdefghijklmnopqrstuvwxyz", "\u0120"]
    special = [
        {"id": n, "content": letters[n], "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for n in (0, 1)
    ]
    split = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {one: n for n, one in enumerate(letters)}, "merges": []}
    whole = {"version": "1.0", "added_tokens": special, "pre_tokenizer": split, "model": model}
    ends = {"bos_token": letters[0], "eos_token": letters[1]}
    sentence = "the quick brown fox jumps over the lazy dog "
    for name, text in {
        "tokenizer/tokenizer.json": json.dumps(whole),
        "tokenizer/tokenizer_config.json": json.dumps(ends),
        "reading/data.json": "\n".join([json.dumps({"text": sentence * 300})] * 100),
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def main() -> None:
    """Capture the cases named, all by default, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    names = parser.parse_args().names or list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    print("| script | world | CPU | memory | step | MFU | memory of the GPU |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in names:
        with TemporaryDirectory() as folder:
            print(row(CASES[name], Path(folder)), flush=True)


if __name__ == "__main__":
    main()
