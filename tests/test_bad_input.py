"""Whatever a user gets wrong: one line that says where, what and what to do, and exit code 2."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.interface.cli.main import main
from sim.uncertainty import evidence

JOB = """
model = "gpt2-124m"
topology = "dgx-a100-hdr"
stack = "megatron-lm-2022"
gpus = 16

[plan]
tp = 2
pp = 2
microbatch = 2
global_batch = 32
precision = "fp16"
"""
ROW = {
    "id": "run-1", "cluster": "dgx-a100-hdr", "family": "gpt", "layers": 12, "hidden": 768,
    "heads": 12, "kv_heads": 12, "ffn": 3072, "vocab": 50304, "seq": 1024, "gated_mlp": "false",
    "tied_embeddings": "true", "gpus": 8, "tp": 1, "pp": 1, "dp": 8, "zero": 0, "microbatch": 8,
    "global_batch": 64, "interleave": 1, "schedule": "none", "recompute": "none",
    "sequence_parallel": "false", "precision": "fp16", "attention": "standard",
    "software": "megatron-lm-2021", "step_time_s": 0.1,
}  # fmt: skip
LINE = re.compile(r"error: (?P<where>.+?): (?P<what>.+); (?P<remedy>.+)\n")

Sim = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with one job in it, where the commands run."""
    (tmp_path / "job.toml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], prog_name="sim")


def refuse(*arguments: str | Path) -> str:
    """Run a command that must be refused; its one line."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output or result.exception
    assert isinstance(result.exception, SystemExit), "an exception would reach the user"
    assert result.stdout == ""
    assert LINE.fullmatch(result.stderr), f"not one line of the promised form: {result.stderr!r}"
    assert len(result.stderr) < 1000, "nobody reads so much"
    return result.stderr


def refuse_job(text: str) -> str:
    Path("bad.toml").write_text(text)
    return refuse("run", "bad.toml")


def test_the_job_itself_is_good(folder: Path) -> None:
    assert invoke("run", "job.toml", "--json").exit_code == 0


# Texts of scenarios.


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("microbatch", "microbach", "unknown key 'microbach'; did you mean 'microbatch'?"),
        ("topology", "topologie", "unknown key 'topologie'; did you mean 'topology'?"),
        ("gpt2-124m", "gpt2-142m", "no model named 'gpt2-142m'; did you mean 'gpt2-124m'?"),
        ("dgx-a100-hdr", "dgx-a100", "no topology named 'dgx-a100'; did you mean"),
        ("dgx-a100-hdr", "dgx-h100", "did you mean 'dgx-h100-ndr'?"),
        ("megatron-lm-2022", "megatron-2022", "no stack named 'megatron-2022'; did you mean"),
        ('"fp16"', '"fp61"', "did you mean 'fp16'?"),
        ("global_batch = 32\n", "", "global_batch is missing; add global_batch = ..."),
        ("tp = 2", "tp = 'two'", 'tp = "two" is not a whole number; write tp in digits'),
        ("tp = 2", "tp = '8'", 'tp = "8" is not a whole number; write tp = 8'),
        ("gpus = 16", "gpus = 16\nchange.model.seq = '2K'", "whole number; write seq = 2048"),
        ("tp = 2", "tp = 4.6", "tp = 4.6 is not a whole number; write tp = 5"),
        ("tp = 2", "tp = true", "tp = true is not a whole number"),
        ("tp = 2", "tp = 2.0", "tp = 2.0 is not a whole number; write tp = 2"),
        ("= 32", "= 1e9", "is not a whole number; write global_batch = 1000000000\n"),
        ("tp = 2", "axes = { tp = 2 }", "axes: 'tp' is a key of [plan] itself; set plan.tp"),
        ("tp = 2", "tp = 2\naxes = { dp_hzp = 2 }", "no axis named 'dp_hzp'; did you mean"),
        ("tp = 2", "tp = [2]", "tp = [2]"),
        ("tp = 2", "tp = 2\nsequence_parallel = 1", "is not true or false"),
        ("tp = 2", "tp = 2\nschedule = 'interleavd'", "did you mean 'interleaved'?"),
        ("tp = 2", "tp = 2\nrecompute = 'selectiv'", "did you mean 'selective'?"),
        ("tp = 2", "tp = 2\nrecompute = ['mlp', 'mla_up_proj']", "is named 'mla_up_proj'; known:"),
        ("tp = 2", "tp = 2\nrecompute = 3", "recompute = 3 is not a text"),
        ("tp = 2", "tp = 2\norder = 'tp-pp'", "name tp, cp, dp and pp once each"),
        ("tp = 2", "tp = 2\ngradients = { rank = 4 }", "plan.gradients: kind is missing"),
        ("tp = 2", "tp = 2\ngradients = { feedback = true }", "plan.gradients: kind is missing"),
        ("tp = 2", "tp = 2\nactivations = { ratio = 0.1 }", "plan.activations: kind is missing"),
        ("tp = 2", "tp = 2\nzero = 2\ngradients = { kind = 'int8' }", "set zero = 1"),
        ("tp = 2", "tp = 2\ncontext = 'rings'", "did you mean 'ring'?"),
        ("tp = 2", "tp = 2\noffload = { optimizer = 2.0 }", "set optimizer at most 1"),
        ("tp = 2", "tp = 2\noffload = { optimiser = 1.0 }", "did you mean 'optimizer'?"),
        ("tp = 2", "tp = 2\noffload = { parameters = 1.0 }", "set zero = 3"),
        ("tp = 2", "tp = 2\nreshard = false", "reshard without sharded parameters; set zero = 3"),
        ("tp = 2", "tp = 2\nprefetch = 2", "prefetch without sharded parameters; set zero = 3"),
        ("tp = 2", "tp = 2\nzero = 1\nno_sync = true", "no_sync without sharded gradients"),
        ("tp = 2", "tp = 2\ndrains = 3", "drains = 3 does not divide 4 microbatches"),
        ("pp = 2", "pp = 1\ndrains = 2", "with pp = 1: there is no pipeline; set pp > 1"),
        ("tp = 2", "tp = 2\ndrains = 2\nschedule = 'zb-auto'", "orders all microbatches of a step"),
        ("tp = 2", "tp = 2\nzero = 3\nreshard = 'near'", "the axis dp_hpz need each other"),
        ("tp = 2", "tp = 2\nlayers = [6, 7]", "13 but the model has 12 layers"),
        ("tp = 2", "tp = 2\nlayers = [6, 6, 0]", "plan, layers: 3 counts for 2 stages"),
        ('"fp16"', '"fp16"\nrecipe = "mxfp8"', "but precision = 'fp16'; set precision"),
        ('"fp16"', '"fp8"\nrecipe = "mxpf8"', "no recipe named 'mxpf8'; did you mean 'mxfp8'?"),
        ('"fp16"', '"fp8"\nrecipe = { like = "mxpf8" }', "no recipe named 'mxpf8'; did you mean"),
        ('"fp16"', '"fp8"\nrecipe = { atention = true }', "did you mean 'attention'?"),
        ('"fp16"', '"fp8"\nrecipe = { like = 8 }', 'like is not a text; write like = "NAME"'),
        ("pp = 2", "pp = 1\ndefer_embedding_wgrad_compute = true", "without pipeline stages"),
        ("tp = 2", "tp = 2\nzero = 2\ndefer_embedding_wgrad_compute = true", "with zero = 2"),
        ("pp = 2", "pp = 1\naccount_for_loss_in_pipeline_split = true", "no split of layers"),
        ("tp = 2", "tp = 2\naccount_for_loss_in_pipeline_split = true", "do not divide by 2"),
        ("tp = 2", "tp = 2\ntp_comm_overlap = true", "without sequence_parallel; set sequence_par"),
        ('"fp16"', '"fp8"', "A100 80GB SXM has no fp8; it has fp32, tf32, fp16, bf16"),
        ("tp = 2", "tp = 2\nlora = {modules = []}", "lora of no modules trains nothing; name one"),
        ("tp = 2", "tp = 2\nlora = 4", "lora = 4 is not a table; write lora = { ... }"),
        ("tp = 2", "tp = 2\nlora = {modules = 'qkv'}", "not a list; write modules = [...]"),
        ("tp = 2", "tp = 2\nlora = {rank = 769}", "is larger than hidden = 768; set lora.rank at"),
        (
            "tp = 2",
            "tp = 2\nlora = {modules = ['linear_fc1', 'linear_fc1']}",
            "lora.modules names 'linear_fc1' twice",
        ),
        (
            "pp = 2",
            "pp = 2\nrecompute = 'full'\nrecompute_method = 'uniform'\nrecompute_layers = 7",
            "recompute_layers = 7, but a chunk has 6 layers at most",
        ),
        ("tp = 2", "tp = 2\nlora = {rank = 0}", "set rank at least 1"),
        ("tp = 2", "tp = 2\nlora = {modules = ['qkv']}", "'linear_fc1' or 'linear_fc2'"),
        ("tp = 2", "tp = 2\ncontext = 'ulysses'", "no axis divides the sequence; set cp > 1"),
        ("tp = 2", "tp = 2\noffload = { overlap = false }", "offload.overlap without offload"),
        ("tp = 2", "tp = 2\noffload = { nvme = true }", "neither optimizer nor parameters"),
        ("tp = 2", "tp = 2\nrecompute = ['full', 'mlp']", "'full' stands alone; set recompute ="),
        ("tp = 2", "tp = 2\nrecompute = ['mlp', 'mlp']", "recompute names 'mlp' twice"),
        ("tp = 2", "tp = 2\ncuda_graph = ['attn', 'attn']", "cuda_graph names 'attn' twice"),
        ("tp = 2", "tp = 2\ncuda_graph = ['moe_router']", "known: full_iteration, attn, mlp"),
        ("tp = 2", "tp = 8\ngradients = { kind = 'int8' }", "but there is only one replica"),
        ("tp = 2", "tp = 2\nep = 16", "plan, ep: ep = 16 but a stage has 8 ranks; lower ep"),
        ("pp = 2", "schedule = 'gpipe'", "schedule = 'gpipe' with pp = 1: a single stage"),
        ("pp = 2", "schedule = 'mine.csv'", "schedule = 'mine.csv' with pp = 1"),
        ("pp = 2", "activations = { kind = 'int8' }", "but there is only one stage"),
        ("pp = 2", "layers = [11]", "plan, layers: the counts add up to 11 but the model has 12"),
        ("pp = 2", "layers = [6, 6]", "plan, layers: 2 counts for 1 stage"),
        ("pp = 2", "pp = 2\ninterleave = 1000000000", "set interleave at most 1000"),
        ("tp = 2", "tp = 2\noptimizer = 'adafactr'", "did you mean 'adafactor'?"),
        ("tp = 2", "tp = 2\nmoments = 'fp4'", "moments"),
        ("tp = 2", "tp = 2\noptimizer = 'sgd'\nmoments = 'bf16'", "'sgd' have a fixed width"),
        ("tp = 2", "tp = 5", "GPUs"),
        ("tp = 2", "tp = 8", "tp = 8 does not divide heads = 12; lower tp"),
        ("gpus = 16", "gpus = 12", "12 GPUs do not fill nodes of 8; use 8 or 16"),
        ("gpus = 16", "gpus = 16\ngpus = 32", "is not valid TOML"),
        ("[plan]", "[plan", "is not valid TOML: Expected ']'"),
        ("[plan]", "plan = 3\n[other]", "plan"),
    ],
)  # fmt: skip
def test_a_fault_in_a_scenario_is_named(folder: Path, good: str, bad: str, said: str) -> None:
    assert good in JOB
    assert said in refuse_job(JOB.replace(good, bad))


def test_a_layout_that_does_not_match_the_cluster_names_the_missing_factor(folder: Path) -> None:
    line = refuse_job(JOB.replace("pp = 2", "pp = 2\ndp = 3"))
    assert "tp*pp*dp = 12 but the cluster has 16 GPUs; set dp = 4 or leave it out" in line


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("plan.ep=4",), "divided over all 8 ranks of the batch; set ep = 8"),
        (
            ("gpus=32", "plan.dp=32", "plan.ep=32", "plan.microbatch=2048"),
            "ep = 32 ranks for 26 whole tables; set division",
        ),
        (
            ("model.dim=100", "model.bottom=[100]", "model.division=column"),
            "ep = 8 does not divide dim = 100",
        ),
        (("plan.tp=2", "plan.dp=4", "plan.ep=4"), "only a transformer's layers can be divided"),
        (("model.top=[64,2]",), "top ends with 2; let it end with 1"),
    ],
)
def test_tables_of_a_recommendation_model_that_do_not_fit_its_ranks_are_refused(
    settings: tuple[str, ...], said: str
) -> None:
    changes = [part for setting in settings for part in ("--set", setting)]
    assert said in refuse("run", "dlrm", *changes)


def test_changes_that_are_no_table_are_refused_beside_a_setting(folder: Path) -> None:
    Path("bad.toml").write_text("change = 6.0\n" + Path("job.toml").read_text())
    complaint = refuse("run", "bad.toml", "--set", "network.bandwidth=100 Gb/s")
    assert "change: 6.0 is no table; write [change]" in complaint


def test_attention_in_a_precision_that_no_kernel_has_is_refused(folder: Path) -> None:
    ada = ["run", "llama3-8b-mxfp8", "--set", "topology=l40s-pcie"]
    recipe = 'plan.recipe={ like = "delayed-scaling", attention = true }'
    said = refuse(*ada, "--set", recipe)
    assert "its fused attention has no kernels in fp8; name a recipe without" in said


def test_a_recipe_that_tensor_cores_do_not_know_is_refused(folder: Path) -> None:
    hopper = ["run", "llama3-70b-lora", "--set", "plan.recipe=mxfp8"]
    assert "H100 80GB SXM does not scale blocks as MXFP8 does" in refuse(*hopper)


@pytest.mark.parametrize(
    ("scenario", "settings", "said"),
    [
        (
            "vgg16-gist",
            ["plan.stash={bits=12}"],
            "bits = 12: input should be 32, 16, 10 or 8; known: 32, 16, 10, 8",
        ),
        ("vgg16-gist", ["plan.stash={lossless=false}"], "bits = 32 encode nothing"),
        ("vgg16-gist", ["plan.stash={sparsity=1.5}"], "set sparsity below 1.0"),
        ("gpt2-one-gpu", ["plan.stash={}"], "feature maps, but this model has no such maps"),
        ("mixtral-8x7b", ["plan.lora={modules=['linear_fc1']}"], "has a linear layer 'linear_fc1'"),
        ("deepseek-v3", ["plan.lora={modules=['linear_qkv']}"], "has a linear layer 'linear_qkv'"),
        ("mixtral-8x7b", ["model.window=64", "model.chunk=64"], "see one or the other; leave one"),
        ("mixtral-8x7b", ["model.blocks.experts.experts=1000000000"], "use at most 100,000"),
        ("mixtral-8x7b", ["model.blocks.experts.groups=2"], "groups = 2 without limit"),
        ("mixtral-8x7b", ["model.blocks.experts.limit=1"], "limit = 1 without groups"),
        ("mixtral-8x7b", ["model.blocks.experts.routing={seed=3}"], "seed = 3, but law ="),
        (
            "mixtral-8x7b",
            ["plan.overlap_experts=true", "plan.schedule=gpipe", "plan.interleave=1"],
            "do not take turns; take a schedule that alternates, such as 1f1b or dualpipe",
        ),
        (
            "mixtral-8x7b",
            ["plan.overlap_experts=true", "plan.zero=2"],
            "do not take turns if ZeRO-2 and 3 move tensors layer by layer; leave it out",
        ),
        ("bert-large-tpu-v2", ["plan.cuda_graph=['attn']"], "TPU v2 core has none"),
        ("bert-large-tpu-v2", ["node.dimensions=1000000000"], "set dimensions at most 6"),
        ("ps-async", ["sharing.workers=1000000000"], "set workers at most 1000000"),
        ("ps-ssp", ["plan.tp=2"], "ps-ssp.toml, plan: global_batch is missing"),
        (
            "ps-ssp",
            ["plan.tp=2", "plan.global_batch=8"],
            "only a transformer's layers can be divided",
        ),
        ("ps-ssp", ["checkpoints={steps=5,storage='1 GB/s'}"], "has no effect beside [sharing]"),
        ("ps-ssp", ["sharing.compression.rank=8"], "kind is missing; add kind = ..."),
        ("diloco", ["sharing.batch=1000000000"], "set batch at most 1000000"),
        ("pipedream-gnmt", ["topology.gpus_per_node=1000000000"], "no path leads from gpu 0"),
    ],
)
def test_what_would_change_nothing_is_refused(
    folder: Path, scenario: str, settings: list[str], said: str
) -> None:
    options = (part for setting in settings for part in ("--set", setting))
    assert said in refuse("run", scenario, *options)


def test_more_stages_than_layers_are_refused(folder: Path) -> None:
    line = refuse_job(JOB.replace("tp = 2", "tp = 1").replace("pp = 2", "pp = 16"))
    assert "pp = 16 stages for 12 layers; set pp <= 12" in line


def test_a_batch_that_does_not_divide_is_refused_with_one_that_does(folder: Path) -> None:
    line = refuse_job(JOB.replace("global_batch = 32", "global_batch = 33"))
    assert "is not a multiple of microbatch*dp = 8; set global_batch = 32" in line


@pytest.mark.parametrize(
    ("straggler", "said"),
    [
        ("rank = 16\nfactor = 2.0", "straggler 1: there is no rank 16; use 0 to 15"),
        ("rank = -1\nfactor = 2.0", "rank = -1 must not be negative"),
        ("stage = 2\nfactor = 2.0", "use 0 to 1"),
        ("node = 2\nfactor = 2.0", "use 0 to 1"),
        ("link = 'node0.nic9'\nfactor = 2.0", "no such link"),
        ("link = 'warp drive'\nfactor = 2.0", "is not the name of a link"),
        ("rank = 1\nfactor = 0.0", "factor"),
        ("rank = 1\nfactor = -2.0", "factor"),
        ("rank = 1\nfactor = nan", "factor = nan is not a finite number"),
        ("rank = 1\nfactor = inf", "factor = infinity is not a finite number"),
        ("rank = 1\nnode = 1\nfactor = 2.0", "name one of rank, stage, node or link"),
        ("factor = 2.0", "name one of rank, stage, node or link"),
        ("rank = 1", "give either a factor"),
        ("rank = 1\nfactr = 2.0", "unknown key 'factr'; did you mean 'factor'?"),
    ],
)
def test_a_straggler_that_cannot_be_is_refused(folder: Path, straggler: str, said: str) -> None:
    assert said in refuse_job(f"{JOB}\n[[straggler]]\n{straggler}\n")


# Numbers that mean nothing, in every kind of file.


@pytest.mark.parametrize("number", ["-1", "0", "nan", "inf", "-inf", "1e999", "'12'", "true"])
@pytest.mark.parametrize(
    "key",
    ["gpus", "plan.tp", "plan.pp", "plan.dp", "plan.microbatch", "plan.global_batch",
     "plan.interleave", "model.layers", "model.hidden", "model.heads", "model.vocab", "model.seq",
     "device.sms", "network.efficiency", "network.oversubscription", "node.efficiency"],
)  # fmt: skip
def test_numbers_below_one_or_not_finite_are_refused(folder: Path, key: str, number: str) -> None:
    assert key.split(".")[-1] in refuse("run", "job.toml", "--set", f"{key}={number}")


@pytest.mark.parametrize(
    "text",
    ["-1 GB/s", "0 GB/s", "nan GB/s", "inf GB/s", "25", "25.0", "GB/s", "''", "25 GB", "25 W"],
)
@pytest.mark.parametrize("key", ["network.bandwidth", "node.bandwidth", "device.memory_bandwidth"])
def test_a_bandwidth_needs_a_positive_number_and_its_unit(
    folder: Path, key: str, text: str
) -> None:
    line = refuse("run", "job.toml", "--set", f"{key}={text}")
    assert "bandwidth" in line
    assert "write it like '400 Gb/s'" in line


@pytest.mark.parametrize("text", ["-1 us", "nan s", "inf s", "2 GB", "2", "2 light years"])
@pytest.mark.parametrize("key", ["network.latency", "node.latency", "stack.launch_forward"])
def test_a_time_may_be_zero_but_not_negative(folder: Path, key: str, text: str) -> None:
    assert key.split(".")[1] in refuse("run", "job.toml", "--set", f"{key}={text}")
    assert invoke("run", "job.toml", "--set", f"{key}=0 s").exit_code == 0


# Settings on the command line.


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("plan.tp", "is not of the form key=value; e.g. plan.tp=4"),
        ("=4", "is not of the form key=value"),
        ("plan.tpp=4", "unknown key 'tpp'; did you mean 'tp'?"),
        ("plann.tp=4", "unknown key 'plann.tp'; did you mean 'plan'?"),
        ("generation.prompts=3", "this scenario is of a kind that has no generation; name a"),
        ("plan.tp.x=4", "is a value, not a table"),
        ("plan.=4", "unknown key ''"),
        ("plan=4", "plan"),
        ("model.hiden=4", "unknown key 'hiden'; did you mean 'hidden'?"),
        ("model.layers.x=4", "layers"),
        ("model.window=-1", "window = -1 must not be negative"),
        ("model.latent={kv = 64, rotary = 64}", "latent.rotary = 64 leaves nothing of a head"),
        ("model.latent={kv = 64, rope = 32}", "unknown key 'rope'; "),
        ("model.qk_norm=rms", "did you mean 'rmsnorm'?"),
        ("model.blocks.dense.windw=4", "blocks.dense: unknown key 'windw'; did you mean 'window'?"),
        (
            "model.blocks.sliding.window=4",
            'no layer; name it in pattern, as in pattern = "sliding"',
        ),
        (
            "model.pattern=['dense']",
            """['dense'] is a list; write it like "3 dense, 58 experts\"""",
        ),
        ("model.name=['mine']", 'name = ["mine"] is not a text; write name = "..."'),
        (
            "model.pattern=dense, slidng",
            "no kind of block is named 'slidng', not even in SIM_PLUGINS",
        ),
        ("model.mtp=-1", "mtp = -1 must not be negative"),
        ("model.mtp=1000000", "mtp = 1,000,000 is more than can be simulated; use at most 100"),
        ("model.layers=1000000000", "more than can be simulated; use at most 10,000"),
        ("model.pattern=1000000000 dense", 'write it like "3 dense, 58 experts"'),
        ("model.family=lama", "did you mean 'llama'?"),
        ("device.peak={}", "error: "),
        ("device.name=mine", "name another device instead: device = NAME"),
        ("network.nics=16", "count all NICs of a GPU as one NIC with their total bandwidth"),
        ("tp=4", "unknown key 'tp'; did you mean 'plan.tp'?"),
        ("device.lanes=0", "lanes = 0 must be positive"),
        ("device.gemm.full.bf16=0", "a share of 0.0 of the peak is outside"),
        ("node.reduces=true", "reduces = true, but ampere has no NVLink SHARP"),
        ("topology.backend=xla", "xla backend needs chips in a torus, which this cluster lacks"),
        (
            "topology.gpus=8",
            "the job needs 16 GPUs, but the cluster has 8; use at most 8, set topology.gpus = 16",
        ),
        ("network.bandwith=4", "unknown key 'bandwith' for shape = \"fat-tree\"; did you mean 'b"),
        ("network.algorithm=5", "algorithm = 5 is not a list"),
        (
            'network.algorithm=[{use="ring", upto="1 MB"}]',
            "key 'upto'; did you mean 'up_to'?",
        ),
        ('network.algorithm=[{use="ring", kinds="sum"}]', "no collective named 'sum'; known: all_"),
        ('network.algorithm=[{use="tree", kinds="all_gather"}]', "tree has no all_gather; it has"),
        ("network.algorithm=[{use=[]}]", "use is empty; name an algorithm"),
        ("node.algorithm=nvls", "error: node.algorithm 'nvls': needs NVLink SHARP"),
        ("network.latency=5 parsecs", "'5 parsecs' is in 'parsecs', not in s or min"),
        ("backend=nccl", "unknown key 'backend'; did you mean 'topology.backend'?"),
        ("backnd=nccl", "unknown key 'backnd'; known: "),
        ("host.bandwith=4", "unknown key 'bandwith'; did you mean"),
        ("host.bandwidth=400 GB/s", "a host has one kind of link; give generation"),
        ("device.memmory=80 GiB", "unknown key 'memmory'; did you mean 'memory'?"),
        ("stack.precisions={fp16 = 'nowhere'}", "nowhere"),
        ("stack.fusion.normm=true", "unknown key 'normm'; did you mean 'norm'?"),
        ("stack.fusion.reserved_sms=108", "A100 80GB SXM has 108 SMs; lower reserved_sms"),
        ("model=", "no model named ''"),
        ("checkpoints.steps=0", "set steps at least 1"),
        ("checkpoints={storage='1 GB/s'}", "steps is missing; add steps = ..."),
        ("straggler=3", "straggler"),
        ("straggler=[{rank=99, factor=2}]", "use 0 to 15"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(folder: Path, setting: str, said: str) -> None:
    assert said in refuse("run", "job.toml", "--set", setting)


# Files that are not there, or are not what they should be.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "gpt3-175b-megatrom"], "did you mean 'gpt3-175b-megatron'?"),
        (["run", "missing.toml"], "no file 'missing.toml'"),
        (["run", "a/b/c.toml"], "no file 'a/b/c.toml'"),
        (["run", "folder.toml"], "'folder.toml' is a folder"),
        (["run", "."], "no scenario named '.'"),
        (["run", "x" * 5000], "no scenario named"),
        (["run", "nul\0.toml"], "no file"),
        (["show", "atlantis"], "no topology named 'atlantis'"),
        (["show", "atlantis.json"], "no file 'atlantis.json'"),
        (["show", "llama3-8b", "--gpus", "8"], "llama3-8b has no number of GPUs; leave it out"),
        (["run"], "neither SCENARIO nor --model"),
        (["run", "--model", "llama3-8b"], "neither SCENARIO nor --topology"),
        (
            ["run", "--model", "llama3-8b", "--topology", "dgx-h100-ndr"],
            "--set plan.global_batch=256",
        ),
        (["show", "dgx-a100-hdr", "--gpus", "0"], "--gpus"),
        (["show", "dgx-a100-hdr", "--gpus", "12"], "use 8 or 16"),
        (["show", "b200-node", "--gpus", "16"], "[network]"),
        (["list", "scenari"], "known: scenarios"),
        (["validate", "missing.csv"], "No such file"),
        (["validate", "."], "no table named '.'"),
        (["rum"], "did you mean 'run'?"),
        (["run"], "see `sim run --help`"),
        (["run", "job.toml", "--jsn"], "did you mean '--json'?"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, arguments: list[str], said: str) -> None:
    (folder / "folder.toml").mkdir()
    assert said in refuse(*arguments)


def test_a_scenario_of_bytes_is_refused(folder: Path) -> None:
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00 = 1")
    assert "is not UTF-8 text; save it as UTF-8" in refuse("run", "bytes.toml")


@pytest.mark.parametrize("broken", [b"[plan", b"\xff\xfe"])
def test_a_broken_file_does_not_answer_for_a_name_that_nobody_has(
    folder: Path, broken: bytes
) -> None:
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "cut.toml").write_bytes(broken)
    assert "no scenario named 'nosuch'" in refuse("run", "nosuch")
    assert "cut.toml: is not " in refuse("run", "cut")


def test_a_scenario_without_a_word_says_what_it_needs(folder: Path) -> None:
    assert "model is missing; add model = ..." in refuse_job("")


# Topologies of the user's own.

CLUSTER = """
name = "mine"
device = "a100-80gb-sxm"
gpus = 16
gpus_per_node = 4
[node]
fabric = "mesh"
bandwidth = "100 GB/s"
latency = "1 us"
cables = [[0, 1, 1], [1, 2, 1], [2, 3, 1]]
[network]
shape = "graph"
kind = "roce"
bandwidth = "100 Gb/s"
latency = "2 us"
size = 4
cables = [[0, 1], [1, 2], [2, 3]]
"""


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("[1, 2, 1], [2, 3, 1]", "[1, 2, 1]", "no path leads from gpu 0 to gpu 3"),
        ("[1, 2], [2, 3]", "[1, 2]", "no path leads from node 0 to node 3 (gpu 12)"),
        ("[2, 3]]", "[2, 7]]", "below size = 4"),
        ("[2, 3]]", "[2, 3, 0]]", "a cable is [node, node] or [node, node, number]"),
        ("size = 4\n", "size = 4\nswitches = -1\n", "switches = -1 must not be negative"),
        ("size = 4\n", "size = 4\nspread = true\n", "no ring through all nodes"),
        ("[2, 3, 1]", "[2, 3, 0]", "[slot, slot, number]"),
        ("gpus = 16", "gpus = 64", "use at most 16 GPUs"),
        ("size = 4\n", "", "mine.toml, network: size is missing; add size = ..."),
        ('shape = "graph"', 'shape = "grph"', "did you mean 'graph'?"),
        ('"100 Gb/s"', '"100 Gb"', "write it like '400 Gb/s'"),
        ('"a100-80gb-sxm"', '"a100-80gb"', "no device named 'a100-80gb'; did you mean"),
        ("[network]", "[netwrk]", "unknown key 'netwrk'; did you mean 'network'?"),
        ("size = 4\n", 'size = 4\nalgorithm = "rings"\n', "named 'rings'; did you mean 'ring'?"),
        ("[node]", '[node]\nalgorithm = ["auto", "bruck"]', "no algorithm named 'bruck'; known: "),
    ],
)
def test_a_fault_in_a_topology_is_named(folder: Path, good: str, bad: str, said: str) -> None:
    assert good in CLUSTER
    (folder / "mine.toml").write_text(CLUSTER.replace(good, bad))
    assert said in refuse("show", "mine.toml")
    assert said in refuse_job(JOB.replace('"dgx-a100-hdr"', '"mine.toml"'))


def test_the_topology_itself_is_good(folder: Path) -> None:
    (folder / "mine.toml").write_text(CLUSTER)
    assert invoke("show", "mine.toml").exit_code == 0


# The user's own measured runs, on which intervals rest.


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rows = 0", "rows"),
        ("location = nan", "location = nan is not a finite number"),
        ("scale = -0.1", "scale"),
        ("work = 'sparse'", "work"),
        ("stak = 'b'", "unknown key 'stak'; did you mean 'stack'?"),
    ],
)
def test_a_wrong_file_of_measured_runs_is_one_line(
    folder: Path, line: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "evidence", evidence.evidence.__wrapped__)
    monkeypatch.setattr("sim.results.assemble.evidence", evidence.evidence)
    spread = {
        "table": "'t'", "stack": "'s'", "device": "'d'", "generation": "'volta'", "topology": "'c'",
        "precision": "'fp16'", "work": "'dense'", "rows": 1, "location": 0, "scale": 0,
    }  # fmt: skip
    key, _, value = line.partition(" = ")
    lines = [f"{name} = {known}" for name, known in (spread | {key: value}).items()]
    there = folder / "topologies" / "validated"
    there.mkdir(parents=True)
    (there / "mine.toml").write_text("\n".join(["[[spreads]]", *lines]))
    assert said in refuse("run", "gpt2-one-gpu")


# Files that cannot be written.


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--trace=out.txt", "has an unknown ending; end it in .json or .gz"),
        ("--picture=out.jpeg", "end it in .png or .svg"),
        ("--report=out.doc", "end it in .html or .md or .tex or .csv or .json or .txt"),
        ("--timeline=out.json", "end it in .csv"),
        ("--trace=nowhere/out.json", "no folder 'nowhere'; make it or name another"),
        ("--picture=full.png", "is a folder; name a file in it"),
        ("--trace=job.toml/out.json", "no folder 'job.toml'"),
        ("--trace=", "has an unknown ending"),
        ("--report=t.pdf", "print the .html of a report, or draw a picture with --picture t.pdf"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_simulation(
    folder: Path, option: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "full.png").mkdir()
    monkeypatch.setattr("sim.kind.answer", lambda *_, **__: pytest.fail("simulated"))
    assert said in refuse("run", "job.toml", option)


def test_a_command_that_is_refused_leaves_nothing_behind(folder: Path) -> None:
    before = sorted(folder.iterdir())
    refuse("run", "job.toml", "--trace=a.json", "--picture=b.png", "--set", "plan.tp=3")
    refuse("show", "nowhere", "--picture=c.png")
    refuse("validate", "missing.csv", "--plot=d.png", "--rows=e.csv")
    assert sorted(folder.iterdir()) == before


def test_a_disk_that_fills_up_leaves_the_older_file_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(self: Path, *_: object, **__: object) -> None:
        with open(self, "w") as half:
            half.write("half a pa")
        raise OSError(28, "No space left on device")

    (folder / "page.txt").write_text("older")
    monkeypatch.setattr(Path, "write_text", fill)
    assert "No space left on device" in refuse("run", "job.toml", "--report=page.txt")
    assert (folder / "page.txt").read_text() == "older"
    assert sorted(path.name for path in folder.iterdir()) == ["job.toml", "page.txt"]


# Tables of measurements.


def write_table(row: dict[str, object]) -> None:
    lines = (",".join(row), ",".join(str(value) for value in row.values()))
    Path("table.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("text", ["", "\n", "\0\1\2", '"never closed'])
def test_a_table_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / "table.csv").write_text(text)
    assert "table.csv" in refuse("validate", "table.csv")


def test_a_missing_column_is_named(folder: Path) -> None:
    write_table({key: value for key, value in ROW.items() if key != "heads"})
    assert "column 'heads' is missing" in refuse("validate", "table.csv")


def test_a_table_without_rows_is_refused(folder: Path) -> None:
    (folder / "table.csv").write_text(",".join(ROW) + "\n")
    assert "table.csv: has no rows" in refuse("validate", "table.csv")


def test_a_setting_that_no_row_takes_is_refused(folder: Path) -> None:
    write_table(ROW)
    assert "did you mean 'stack'?" in refuse("validate", "table.csv", "--set", "stak.clip=false")
    assert "key=value" in refuse("validate", "table.csv", "--set", "stack.clip")


def test_an_unknown_table_is_refused_with_the_nearest_name(folder: Path) -> None:
    assert "no table named 'berd'; did you mean 'bert'?" in refuse("validate", "berd")


# An empty microbatch is one that the source does not print (`sim.analysis.validation.unprinted`).
@pytest.mark.parametrize(
    ("column", "value"),
    [
        (column, value)
        for column in ("layers", "gpus", "tp", "zero", "microbatch", "global_batch")
        for value in ("", "-1", "many", "1.5", "inf")
        if (column, value) != ("microbatch", "")
    ],
)
def test_a_table_whose_row_cannot_be_is_refused_with_the_reason(
    folder: Path, column: str, value: str
) -> None:
    write_table(ROW | {column: value})
    result = invoke("validate", "table.csv")
    assert result.exit_code == 2, result.output
    assert "run-1" in result.stderr
    assert column in result.stderr


@pytest.mark.parametrize("value", ["0", "-3", "nan?"])
def test_a_measured_time_that_is_none_is_refused_by_its_column(folder: Path, value: str) -> None:
    write_table(ROW | {"step_time_s": value})
    assert "step_time_s" in invoke("validate", "table.csv").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "job.toml", f"--set=plan.tp={'9' * 5000}"], "tp"),
        (["run", "job.toml", f"--set=plan.tp={'[' * 1000}{']' * 1000}"], "tp"),
        (["run", "job.toml", f"--set=plan.axes={'[' * 50}{']' * 50}"], "nested more than 32 deep"),
        (["run", "job.toml", f"--set=plan{'.a' * 20_000}=1"], "has a key of"),
        (["run", "job.toml", "--set=device.gemm.quarter_tile=0"], "quarter_tile = 0 must be pos"),
        (["run", "job.toml", "--set=model.vocab=-400"], "vocab = -400 must"),
        (["run", "job.toml", "--set=tokens=1e300"], "is not between 1e-27 and 1e+27"),
        (["run", "job.toml", "--set=network.bandwidth=1e300 B/s"], "is not between 1e-27"),
        (["run", "job.toml", "--set=model.layers=1000000000"], "use at most 10,000"),
        (["run", "resnet", "--set=model.classes=-1"], "classes = -1 must be positive"),
        (["cost", "job.toml", "--tokens=-400"], '"-400" is not positive'),
        (["cost", "job.toml", "--tokens=nan"], '"nan" is not a finite number'),
        (["cost", "job.toml", "--tokens=1e9", "--goodput=1e-300"], "is not between 1e-27"),
        (["cost", "job.toml", "--tokens=1e9", "--goodput=1.5"], "give a share of the time"),
        (["goodput", "job.toml", "--days=inf"], '"inf" is not a finite number'),
        (["goodput", "job.toml", "--days=1e8"], "1e+08 days would take about"),
        (["run", "job.toml", "--samples=900000000"], "ask for less"),
        (["run", "ps-async", "--set=sharing.workers=1000000", "--set=topology.gpus=1000000"],
         "100,000,000 updates of 65 weights would take about"),
        (["run", "ps-async", "--set=sharing.learning.size=1000000000"], "at most 1000000"),
        (["run", "federated", "--set=sharing.times.parameters=1e-300"], "is not between 1e-27"),
        (["run", "ps-async", "--set=sharing.straggler=[{kind='lognormal', sigma=1e308}]"],
         "sigma = 1e+308 is not between"),
        (["run", "job.toml", "--limit=soon"], "'soon' is not a quantity"),
        (["sweep", "job.toml", "--vary=plan.microbatch={}"], "microbatch = {} is not a whole"),
        (["sweep", "job.toml", "--vary=plan.microbatch=1..1000000000"], "has 1,000,000,000 values"),
        (["run", "job.toml", "--set=model=\x1b[2J"], r"\x1b[2J"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_number_or_nesting_without_sense_is_refused(
    folder: Path, arguments: list[str], said: str
) -> None:
    (folder / "resnet.toml").write_text(
        'model = "resnet50"\ntopology = "dgx-1-v100"\nplan = { global_batch = 8 }'
    )
    named = [f"{one}.toml" if one == "resnet" else one for one in arguments]
    assert said in refuse(*named)


def test_a_question_that_takes_long_is_answered_when_that_is_allowed(folder: Path) -> None:
    asked = ["goodput", "job.toml", "--days=3000000", "--set=gpus_per_node=8"]
    needed = re.search(r'allow it: (--limit) "(.+)"', refuse(*asked))
    assert needed
    assert invoke("goodput", "job.toml", "--days=3", "--limit", needed[2]).exit_code == 0
