"""`sim.init` writes a commented scenario for the user's own job. Its plan fits into memory if a
simple plan does."""

from pathlib import Path
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.results.formatting import several
from sim.results.result import Result

_PAGE = """\
# {title}. Written by `sim init`; `sim run {name}` simulates a step of it.
# docs/reference.md has every key; `--set plan.tp=4` changes any value for one run.
model = "{model}"  # a name of `sim list`, a TOML file or a Hugging Face config.json
topology = "{topology}"  # the cluster: `sim show {topology}`
gpus = {gpus}  # how many of the cluster's GPUs the job uses
stack = "{stack}"  # the software that runs the job; `sim list` has others
# tokens = 1e12  # tokens of the whole training, for `sim cost`

# To find the fastest: `sim plan {model} {topology} --gpus {gpus} --global-batch {global_batch}`.
[plan]
global_batch = {global_batch}  # sequences a step on all GPUs together
microbatch = {microbatch}  # sequences at a time on a data-parallel rank
tp = {tp}  # tensor-parallel ranks; best within a node
pp = {pp}  # pipeline stages; data parallelism takes the remaining GPUs
# cp = 1  # ranks that share a long sequence
# schedule = "1f1b"  # pipeline schedule: zb-h1, dualpipev, a CSV of actions, ...
zero = {zero}  # ZeRO: 0 none, 1 optimizer, 2 gradients too, 3 parameters too (FSDP)
recompute = "{recompute}"  # none, selective, full
sequence_parallel = {sequence_parallel}  # beside tensor parallelism
# precision = "bf16"  # format of matrix products: bf16, fp16, fp8, ...

{change}  # values of the files named above, for this scenario alone
{seq}
# network.bandwidth = "200 Gb/s"
# device.memory = "80 GiB"

# [checkpoints]  # for `sim cost` and `sim goodput`
# steps = 500
# storage = "100 GB/s"

# [[straggler]]  # a rank that is slower than its peers
# rank = 0
# factor = 1.1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The `path` of the scenario that `init` wrote, whether its plan `fits` into memory, and
    `notes` on values that were assumed or left out."""

    path: Path
    fits: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"sim run {self.path.stem}"


def init(
    name: str,
    *,
    model: str,
    topology: str,
    gpus: int,
    global_batch: int,
    stack: str = "megatron-core",
    seq: int | None = None,
    force: bool = False,
) -> Started:
    """Write scenarios/NAME.toml, with a comment on each key. Its plan is the default plan, changed
    by the first remedy found if the default plan does not fit. `seq` is the number of tokens of a
    sequence, the model's by default. Raises `InputError`, also if the file exists and `force` is
    not set."""
    path = scenario_file("scenarios", name, force=force)
    job = {"model": model, "topology": topology, "gpus": gpus, "global_batch": global_batch}
    written, fits, notes = _page(name, {**job, "stack": stack}, seq)
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(written, encoding="utf-8")
    return Started(path=path, fits=fits, notes=notes)


def scenario_file(folder: str, name: str, *, force: bool) -> Path:
    """Return the path of the file NAME.toml to write. Raises `InputError` if the name is not a
    plain name, or if the file exists and `force` is not set."""
    path = Path(folder) / f"{name}.toml"
    if Path(name).name != name or name.endswith(".toml") or not name.isprintable():
        raise InputError("--name", f"{name!r} is no plain name", "give one such as my-job")
    if path.exists() and not force:
        raise InputError(str(path), "is there already", "take another name, or --force")
    return path


def _page(name: str, job: dict[str, Any], seq: int | None) -> tuple[str, bool, tuple[str, ...]]:
    """Return the text of the scenario file, whether its plan fits, and notes on assumed values. If
    the default plan does not fit, its first remedy is applied."""
    from sim import run
    from sim.interface.views.model import title
    from sim.kind import described

    document = {"name": name, **{k: job[k] for k in ("model", "topology", "gpus", "stack")}}
    document |= {"change": {"model.seq": seq}} if seq else {}
    scenario = described({**document, "plan": {"global_batch": job["global_batch"]}})
    result = run(scenario)
    if not result.fits and result.remedies:
        remedy = [f"plan.{fix.replace(' = ', '=')}" for fix in result.remedies[0].split(" and ")]
        scenario = described({**document, "plan": {"global_batch": job["global_batch"]}}, remedy)
    plan = scenario.layout
    keys = ("microbatch", "tp", "pp", "zero", "recompute")
    size = f"{several(job['gpus'], 'GPU')} of {job['topology']}"
    named = f"{title(job['model'])} on {size}"
    fits = bool(result.fits or result.remedies)
    page = _PAGE.format(
        **job,
        title=named,
        name=name,
        change="[change]" if seq else "# [change]",
        seq=f"model.seq = {seq}" if seq else f"# model.seq = {_tokens(result)}",
        sequence_parallel=str(plan.sequence_parallel).lower(),
        **{key: getattr(plan, key) for key in keys},
    )
    return page, fits, result.inputs.notes


def _tokens(result: Result) -> int:
    """Return the tokens of a sequence, or 4,096, a common length, if samples are not sequences."""
    return result.inputs.tokens if result.inputs.tokens > 1 else 4096
