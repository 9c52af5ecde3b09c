"""`sim.init`: a scenario of one's own, commented, with a plan that fits if a simple plan does."""

from pathlib import Path
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.interface.showing import title
from sim.results.formatting import several
from sim.results.result import Result

_PAGE = """\
# {title}. Written by `sim init`; `sim run {name}` simulates a step of it.
# docs/reference.md has every key; `--set plan.tp=4` changes any value for one run.
model = "{model}"  # a name of `sim list`, a TOML file or a Hugging Face config.json
topology = "{topology}"  # the cluster: `sim show {topology}`
gpus = {gpus}  # so many of it
stack = "{stack}"  # the software that runs the job; `sim list` has others
# tokens = 1e12  # of the whole training, for `sim cost`

# The fastest: `sim plan {model} {topology} --gpus {gpus} --global-batch {global_batch}`.
[plan]
global_batch = {global_batch}  # sequences a step, of all GPUs
microbatch = {microbatch}  # sequences at a time on a data-parallel rank
tp = {tp}  # tensor-parallel ranks; best within a node
pp = {pp}  # pipeline stages; data parallelism has the GPUs that are left
# cp = 1  # ranks that share a long sequence
# schedule = "1f1b"  # of the pipeline: zb-h1, dualpipev, a CSV of actions, ...
zero = {zero}  # ZeRO: 0 none, 1 optimizer, 2 gradients too, 3 parameters too (FSDP)
recompute = "{recompute}"  # none, selective, full
sequence_parallel = {sequence_parallel}  # beside tensor parallelism
# precision = "bf16"  # of matrix products: bf16, fp16, fp8, ...

{change}  # values of the files named above, for this scenario alone
{seq}
# network.bandwidth = "200 Gb/s"
# device.memory = "80 GiB"

# [checkpoints]  # for `sim cost` and `sim goodput`
# steps = 500
# storage = "100 GB/s"

# [[straggler]]  # what is slower than its peers
# rank = 0
# factor = 1.1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The `path` of a scenario that was written, whether its plan `fits` into memory, and what was
    taken or left out unasked (`notes`)."""

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
    """Write scenarios/NAME.toml, with a comment on each key, and a first plan that fits if a change
    or two of the plainest make one. `seq` are the tokens of a sequence, the model's by default.
    Raises `InputError`, also for a file that is there unless
    `force` says so."""
    path = scenario_file("scenarios", name, force=force)
    job = {"model": model, "topology": topology, "gpus": gpus, "global_batch": global_batch}
    written, fits, notes = _page(name, {**job, "stack": stack}, seq)
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(written, encoding="utf-8")
    return Started(path=path, fits=fits, notes=notes)


def scenario_file(folder: str, name: str, *, force: bool) -> Path:
    """The file of a name that is to be written. Raises `InputError` for what is no plain name, and
    for a file that is there already."""
    path = Path(folder) / f"{name}.toml"
    if Path(name).name != name or name.endswith(".toml") or not name.isprintable():
        raise InputError("--name", f"{name!r} is no plain name", "give one such as my-job")
    if path.exists() and not force:
        raise InputError(str(path), "is there already", "take another name, or --force")
    return path


def _page(name: str, job: dict[str, Any], seq: int | None) -> tuple[str, bool, tuple[str, ...]]:
    """The file, of a plan that fits if the remedies of one that does not know any; whether it fits;
    and what was taken unasked."""
    from sim import run
    from sim.kind import described

    document = {"name": name, **{k: job[k] for k in ("model", "topology", "gpus", "stack")}}
    document |= {"change": {"model.seq": seq}} if seq else {}
    scenario = described({**document, "plan": {"global_batch": job["global_batch"]}})
    result = run(scenario)
    if not result.fits and result.remedies:
        remedy = [f"plan.{own.replace(' = ', '=')}" for own in result.remedies[0].split(" and ")]
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
    """Tokens of a sequence; those of many models where samples are no sequences."""
    return result.inputs.tokens if result.inputs.tokens > 1 else 4096
