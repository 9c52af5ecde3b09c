"""What a script did is recorded, and nothing of the capture stays behind."""

import sys
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.config import progress
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.jobs.capturing.capture import capture, capture_script
from sim.jobs.recorded.axes import every_axes, main_stream
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.recording import PARTS
from sim.jobs.recorded.work import work_of
from sim.program.causes import DATA, EXPERT
from tests.config.test_progress import Terminal
from tests.jobs.capturing.conftest import DDP, MODEL, Capture
from tests.lazy import torch

LAYERS, WIDTH, VOCABULARY, LENGTH, BATCH = 2, 256, 1000, 128, 4
MATRICES = LAYERS * 12 * WIDTH**2 + WIDTH * VOCABULARY
PARAMETERS = MATRICES + WIDTH * VOCABULARY + LAYERS * 2 * WIDTH


def test_products_are_those_of_six_flops_a_parameter_and_token(captured: Capture) -> None:
    done, tokens = work_of(captured()), BATCH * LENGTH
    attention = LAYERS * 12 * tokens * LENGTH * WIDTH  # in full: 4 s h a layer and token, thrice
    assert done.model_flops == 6 * MATRICES * tokens + attention
    assert (done.tokens, done.samples, done.precision) == (tokens, BATCH, "bf16")


def test_ddp_reduces_every_gradient_once_beside_the_backward_pass(captured: Capture) -> None:
    own = captured()
    calls = [event for event in own.events if event.kind == "collective"]
    assert sum(call.bytes for call in calls) == 4 * PARAMETERS
    assert len(calls) > 3
    assert {own.groups[call.group].ranks for call in calls} == {tuple(range(16))}
    assert {(call.name, call.phase, call.blocking) for call in calls} == {
        ("all_reduce", "backward", False)
    }
    read = {mark for event in own.events for mark in event.reads}
    assert read == {call.mark for call in calls}
    buffers = sum(row.bytes for row in own.memory if PARTS[row.part] == "buffers")
    assert 4 * PARAMETERS <= buffers <= 8.1 * PARAMETERS  # the buckets, perhaps made anew once


HOOKED = """
dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(Model().to("cuda"), device_ids=[0], bucket_cap_mb=1)

def halve(state, bucket):
    half = bucket.buffer().to(torch.bfloat16)
    sent = dist.all_reduce(half, async_op=True).get_future()
    return sent.then(lambda sent: bucket.buffer().copy_(sent.value()[0]))

model.{register}
train(model)
"""


@pytest.mark.parametrize(
    "register",
    [
        "register_comm_hook(None, halve)",
        "_register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)",
    ],
)
def test_hooks_of_ddp_send_what_they_compress_and_unpack_it_beside_the_backward_pass(
    captured: Capture, register: str
) -> None:
    own = captured(HOOKED.format(register=register))
    calls = {event.mark: event for event in own.events if event.kind == "collective"}
    assert sum(call.bytes for call in calls.values()) == 2 * PARAMETERS
    unpacked = [e for e in own.events if e.kind == "kernel" and calls.keys() & set(e.reads)]
    assert {(event.stream, own.operators[event.operator].name) for event in unpacked} == {
        (1, "aten.copy_")
    }
    assert len(unpacked) == len(calls)
    kinds = [event.kind for event in own.events if event.kind in ("record", "wait")]
    assert kinds == ["record"] * len(calls) + ["wait"] * len(calls)  # when all are on their way


MEGATRON = """
dist.init_process_group("nccl")
layer = nn.Linear(256, 8, bias=False, device="cuda")  # a router and its expert
layer.weight.of_expert = True
layer.bfloat16()
assert layer.weight.of_expert
experts, everyone = dist.new_group([0, 1]), dist.group.WORLD
dense = nn.Linear(256, 256, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD([*layer.parameters(), *dense.parameters()], lr=1e-3)
for _ in range(3):
    scores = layer(dense(torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)))
    chosen = scores.topk(2).indices
    mask = torch.zeros_like(scores).int().scatter(1, chosen, 1).bool()
    counts = mask.sum(dim=0).reshape(2, 4).sum(dim=1).cpu().numpy()
    assert counts.tolist() == [64, 64]
    sent = torch.empty(128, 256, device="cuda")
    dist.all_to_all_single(torch.empty_like(sent), sent, list(counts), list(counts), experts)
    torch.autograd.Variable._execution_engine.run_backward(
        (scores.float().sum(),), (torch.ones((), device="cuda"),), keep_graph=False,
        create_graph=False, inputs=(), allow_unreachable=True, accumulate_grad=True,
    )
    dist.all_reduce(dense.weight.grad, group=everyone)
    norms = torch.tensor([[dense.weight.grad.norm(), layer.weight.grad.norm()]])
    assert norms.device.type == "cpu" and norms.dtype == torch.bfloat16
    optimizer.step()
    optimizer.zero_grad()
"""


def test_what_megatron_does_past_torch_is_followed(captured: Capture) -> None:
    """Marks on weights that a conversion keeps, masks of tokens made of zeros, backward passes that
    ask the engine themselves, lists of tensors as tensors; experts lie within data parallel ranks.
    """
    own = captured(MEGATRON, world=8)
    phases = {event.phase for event in own.events if event.kind == "kernel"}
    assert phases == {"forward", "backward", "optimizer"}
    axes = next(every_axes([own]))
    assert (dict(axes.mesh), axes.data_ranks) == ({"dp": 2, "dp_replicate": 4}, 8)
    causes = {e.name: axes.cause(e.group, e.name) for e in own.events if e.kind == "collective"}
    assert causes == {"all_to_all": EXPERT, "all_reduce": DATA}


def test_a_kernel_knows_its_line(captured: Capture) -> None:
    own = captured()
    source = MODEL.splitlines()
    lines = {
        (event.phase, source[int(own.lines[event.line].partition(":")[2]) - 1].strip())
        for event in own.events
        if event.kind == "kernel" and "attention" in own.operators[event.operator].name
    }
    line = "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    assert lines == {("forward", line), ("backward", line)}  # of what is differentiated


def test_memory_of_states_is_that_of_adam_in_fp32(captured: Capture) -> None:
    held = dict.fromkeys(PARTS, 0)
    for one in captured().memory:
        held[PARTS[one.part]] += one.bytes
    assert held["parameters"] == 4 * PARAMETERS
    assert held["optimizer"] == pytest.approx(8 * PARAMETERS, rel=1e-3)  # and counters of steps


def test_what_lives_through_the_backward_pass_is_told_from_what_lives_for_a_moment(
    captured: Capture,
) -> None:
    own = captured()
    rows = {one.block: one for one in own.memory if one.bytes}
    ends = {one.block: one.event for one in own.memory if not one.bytes}
    backward = next(n for n, event in enumerate(own.events) if event.phase == "backward")
    kept, moment = (
        {n: row for n, row in rows.items() if PARTS[row.part] == part and 0 <= row.event < backward}
        for part in ("activations", "temporary")
    )
    assert min(ends.get(block, inf) for block in kept) >= backward
    assert max(ends[block] for block in moment) <= backward
    hidden = BATCH * LENGTH * WIDTH
    assert sum(row.bytes for row in kept.values()) > 2 * LAYERS * 16 * hidden  # bf16, and fp32 sums
    assert sum(row.bytes for row in rows.values() if PARTS[row.part] == "gradients") == (
        2 * 4 * PARAMETERS  # of both steps
    )


def test_what_lives_at_the_peak_is_told_by_line(captured: Capture) -> None:
    own = captured()
    peak, source = Memory(own).peak(), MODEL.splitlines()
    assert sum(peak.lines.values()) == sum(peak.parts.values()) == peak.allocated
    by_text: dict[str, float] = {}
    for place, size in peak.lines.items():
        line = int(place.partition(":")[2])
        by_text[source[line - 1].strip() if line <= len(source) else "end"] = size
    assert by_text["optimizer.step()"] == peak.parts["optimizer"]
    wide = "return x + self.down(F.gelu(self.up(x)))"  # 4 of the hidden width, not 3 as QKV
    assert by_text[wide] > by_text["q, k, v = self.qkv(self.norm(x)).split(WIDTH, -1)"]


def test_the_events_of_ddp_do_not_depend_on_the_world(captured: Capture) -> None:
    assert captured(world=16).events == captured(world=512).events


def _left(script: Path) -> list[bool]:
    """Whether torch is as it was after a capture, and after one that fails."""

    def state() -> list[object]:
        ddp = torch.nn.parallel.DistributedDataParallel
        return [
            torch.cuda.is_available(),
            torch.cuda.Stream,
            torch.nn.functional.scaled_dot_product_attention,
            torch.compile,
            ddp.__init__,
            torch.distributed.init_process_group,
            torch.distributed.is_initialized(),
            torch.autograd._engine_run_backward
            if hasattr(torch.autograd, "_engine_run_backward")
            else None,
        ]

    before = state()
    capture_script(script, world=4)
    after = [state() == before]
    with pytest.raises(ZeroDivisionError):
        capture(lambda: 1 / 0, world=2)
    return [*after, state() == before]


def test_nothing_that_was_patched_stays_so(tmp_path: Path) -> None:
    weight = torch.ones(3, requires_grad=True)
    (weight * weight).sum().backward()  # a process need not be fresh
    script = tmp_path / "train.py"
    script.write_text(MODEL + DDP)
    assert _left(script) == [True, True]
    weight = torch.ones(3, requires_grad=True)
    (weight * weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]


def test_how_far_a_capture_has_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> None:
        torch.ones(3, device="cuda")
        while "before the first optimizer step: 1 operators" not in shown.getvalue():
            pass  # ends only if it is shown

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "_TICK", 1e-3)
    with pytest.raises(InputError, match="took 0 steps"):
        capture(train, world=1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x = torch.ones(3, device='cuda').numpy()", "do not read"),
        ("torch.randn(3, device='cuda').nonzero()", "independent of the data"),
        ("import triton_that_is_not_there", "pip install triton"),
        ("from torch._six import inf", "another version of torch"),
        ("torch.cuda.CUDAGraph()", "leave the script's own CUDA graphs out"),
        ("import transformer_engine.pytorch", "choose layers of torch"),
        (
            "table = torch.nn.Embedding(9, 2, sparse=True, device='cuda'); "
            "table(torch.ones(3, dtype=torch.int64, device='cuda')).sum().backward()",
            "dense gradients",
        ),
    ],
)
def test_what_cannot_be_recorded_is_named_with_its_line(
    tmp_path: Path, body: str, said: str
) -> None:
    script = tmp_path / "broken.py"
    script.write_text(f"import torch\n\n{body}\n")
    with pytest.raises(InputError, match=rf"broken\.py:3.*{said}"):
        capture_script(script, world=2)


LOOP = """
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("nccl")
said = [None] * dist.get_world_size()
dist.all_gather_object(said, dist.get_rank())
dist.gather_object(obj=7, object_gather_list=said, dst=0)
assert {*said} == {7}
seed = torch.tensor([7]).to("cuda")
dist.broadcast(seed, 0)
assert seed.cpu().tolist() == [7] == seed.cpu().numpy().tolist()
data = TensorDataset(torch.randint(VOCABULARY, (64, LENGTH)))
loader = DataLoader(data, batch_size=BATCH, pin_memory=True, shuffle=True)
model = torch.compile(Model().to("cuda"), mode="max-autotune")
model = nn.parallel.DistributedDataParallel(
    model, device_ids=[0], find_unused_parameters=True
)
matrices = [weight for weight in model.parameters() if weight.dim() > 1]
others = [weight for weight in model.parameters() if weight.dim() == 1]
optimizers = torch.optim.SGD(others, lr=0.1), torch.optim.AdamW(matrices, foreach=True)
scaler = torch.amp.GradScaler("cuda")
for tokens, in loader:
    tokens = tokens.pin_memory().to("cuda", non_blocking=True)
    mask = tokens != 0
    with torch.amp.autocast("cuda", dtype=torch.float16):
        logits = model(tokens)
    loss = F.cross_entropy(logits[mask].float(), tokens[mask])
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()
    print(loss.item())
"""


def test_a_loop_with_a_loader_a_scaler_and_two_optimizers_is_recorded(captured: Capture) -> None:
    own = captured(LOOP)
    assert (own.parameters, work_of(own).precision) == (PARAMETERS, "fp16")
    updates = [own.operators[e.operator].name for e in own.events if e.phase == "optimizer"]
    assert {"aten._foreach_addcdiv_", "aten._foreach_add_"} <= {*updates}
    # Those of one step: forward and back once, whichever optimizer comes first.
    forward = [e for e in own.events if e.kind == "kernel" and e.phase == "forward"]
    names = [own.operators[event.operator].name for event in forward]
    assert "products run in cuBLAS" in own.notes[0]
    scenario = sim.RecordedScenario(record=(own,), topology="dgx-h100-ndr")
    assert own.notes[0] in sim.run(scenario).warnings
    assert names.count("aten._scaled_dot_product_flash_attention") == LAYERS


def test_a_function_is_captured_on_a_mesh_of_its_own() -> None:
    def train(mesh: object) -> None:
        group = mesh.get_group("tp")  # type: ignore[attr-defined]
        weight = torch.nn.Parameter(torch.ones(8, 8, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(2):
            result = weight @ weight
            torch.distributed.all_reduce(result, group=group)
            result.sum().backward()
            optimizer.step()

    (own,) = sim.capture(train, mesh={"dp": 4, "tp": 2}, rank=5)
    assert (own.script, own.world, own.rank) == ("train", 8, 5)
    assert [group.ranks for group in own.groups] == [(4, 5)]
    assert "test_capture.py" in own.lines[own.events[0].line]
    with pytest.raises(InputError, match="a mesh of 8 ranks in a world of 16"):
        sim.capture(train, mesh={"dp": 4, "tp": 2}, world=16)


def test_a_script_that_never_steps_is_refused() -> None:
    with pytest.raises(InputError, match="took 0 steps of an optimizer"):
        capture(lambda: None, world=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.py", "--world", "8", "--out", "x.json"], "is no file"),
        ([__file__, "--world", "8"], "no --out"),
        ([__file__, "--world", "8", "--rank", "8", "--out", "x.json"], "there is no rank 8"),
    ],
)
def test_bad_commands_are_refused_in_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(main, ["capture", *arguments])
    assert answer.exit_code == 2
    assert said in answer.stderr.splitlines()[-1]


FREE = """
import copy

net = Model().cpu()
net.head.weight = net.embedding.weight
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # before the model moves
first = net.layers[0].norm.weight
first.data = first.data.to("cuda")  # as FSDP1 does
assert first.is_cuda and first is net.layers[0].norm.weight
net.to("cuda")
average = copy.deepcopy(net)
assert average.embedding.weight is average.head.weight is not net.head.weight
assert all(isinstance(weight, nn.Parameter) for weight in average.parameters())
noise = torch.Generator(device="cuda").manual_seed(1)
assert noise.device.type == "cuda" and isinstance(torch.default_generator, torch.Generator)
sums = torch.zeros(WIDTH, WIDTH, device="cuda")
for step in range(2):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda", generator=noise)
    loss = net(tokens).float().square().mean()
    loss.backward()
    half = torch.ones(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    torch.addmm(sums, half, half, out_dtype=torch.float32, out=sums)
    torch.save(obj={"model": net.state_dict(), "optimizer": optimizer.state_dict()}, f="kept.pt")
    print(f"{loss:.3f}", torch.cuda.memory_summary(), loss.detach().cpu().numpy())
    print(loss.numpy(force=True), copy.copy(loss.detach()))
    print(net.head.weight[:2].tolist()[0])
    optimizer.step()
"""


def test_what_scripts_do_freely_is_done_freely(
    captured: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.pt").write_text("of a real run")
    own = captured(FREE, world=1)
    assert own.parameters == PARAMETERS - WIDTH * VOCABULARY  # shared
    updated = [event for event in own.events if event.phase == "optimizer"]
    assert updated  # those that moved
    assert (tmp_path / "kept.pt").read_text() == "of a real run"
    assert "a checkpoint is not written and takes no time" in own.notes[0]
    buffers = (row.bytes for row in own.memory if PARTS[row.part] == "buffers")
    assert sum(buffers) > 4 * own.parameters  # the averages, though the script lets go of them
    added = next(one for one in own.operators if one.name == "aten.addmm")
    assert [one.dtype for one in added.inputs] == ["float32", "bfloat16", "bfloat16"]
    assert work_of(own).executed_flops > 2 * WIDTH**3


JUDGED = """
judge, policy = Model().to("cuda").requires_grad_(False), Model().to("cuda")
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for _ in range(2):
    for length in (LENGTH, LENGTH // 2):
        tokens = torch.randint(VOCABULARY, (BATCH, length), device="cuda")
        with torch.no_grad():
            wanted = judge(tokens)
        F.mse_loss(policy(tokens), wanted).backward()
    optimizer.step()
"""


def test_a_model_that_only_judges_has_no_backward_pass_and_no_tokens(captured: Capture) -> None:
    done = work_of(captured(JUDGED, world=1))
    tokens = BATCH * LENGTH * 3 // 2
    attention = LAYERS * 4 * BATCH * (LENGTH**2 + (LENGTH // 2) ** 2) * WIDTH
    forward = 2 * MATRICES * tokens + attention
    assert (done.tokens, done.samples) == (tokens, 2 * BATCH)
    assert done.model_flops == pytest.approx(3 * forward)
    assert done.executed_flops > 3.8 * forward  # masked attention


PROMPTED = """
model, prompt = Model().to("cuda"), nn.Embedding(20, WIDTH, device="cuda")
model.embedding.requires_grad_(False)
optimizer = torch.optim.SGD(prompt.parameters(), lr=0.1)
for _ in range(2):
    for length in (LENGTH, LENGTH // 2):
        tokens = torch.randint(VOCABULARY, (BATCH, length), device="cuda")
        own = prompt(torch.arange(20, device="cuda")).expand(BATCH, -1, -1)
        x = torch.cat([own, model.embedding(tokens)], 1)
        for layer in model.layers:
            x = layer(x)
        model.head(x).sum().backward()
    optimizer.step()
"""


def test_tokens_of_frozen_embeddings_count_beside_a_prompt_that_is_learnt(
    captured: Capture,
) -> None:
    done = work_of(captured(PROMPTED, world=1))
    assert (done.tokens, done.samples) == (BATCH * LENGTH * 3 // 2, 2 * BATCH)


def test_views_that_a_script_asks_for_are_counted_with_the_kernel_behind_them() -> None:
    """But for what operators call for themselves: `mm` transposes, autograd detaches."""

    def train() -> None:
        weight = torch.nn.Parameter(torch.ones(4, 8, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(2):
            halves = weight.transpose(0, 1).unsqueeze(0).view(2, 4, 4) * 2.0
            halves.exp().sum().backward()
            optimizer.step()

    (own,) = sim.capture(train, world=1)
    forward = [event for event in own.events if event.phase == "forward"]
    names = [own.operators[event.operator].name.partition(".")[2] for event in forward]
    assert dict(zip(names, (event.views for event in forward), strict=True)) == {
        "mul": 3, "exp": 0, "sum": 0, "ones_like": 0,
    }  # fmt: skip


SYNCHRONIZED = """
model = Model().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
dist.init_process_group("nccl")
side = torch.cuda.Stream()
for _ in range(3):
    with torch.cuda.stream(side):
        torch.ones(1 << 20, device="cuda").mul_(2)
    dist.all_reduce(torch.ones(1 << 20, device="cuda"), async_op=True)
    torch.cuda.synchronize(device=0)
    model(torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")).sum().backward()
    optimizer.step()
"""


def test_synchronize_waits_for_all_streams(captured: Capture) -> None:
    recording = captured(SYNCHRONIZED, world=2)
    (aside,) = {e.stream for e in recording.events if e.kind == "kernel"} - {main_stream(recording)}
    waited = [e.stream for e in recording.events if e.kind == "sync"]
    assert sorted(waited) == sorted([main_stream(recording), aside])
    (reduced,) = (e for e in recording.events if e.kind == "collective")
    kinds = [(e.kind, e.mark) for e in recording.events]
    assert kinds.index(("done", reduced.mark)) < kinds.index(("sync", 0))


LEFT = """
model = Model().to("cuda")
try:
    train(model, steps=2)
finally:
    for _ in range(3):
        model(torch.zeros(BATCH, LENGTH, dtype=torch.long, device="cuda"))
"""


def test_what_runs_as_a_script_is_left_is_not_of_the_step(captured: Capture) -> None:
    whole, left = captured('train(Model().to("cuda"), steps=2)', world=1), captured(LEFT, world=1)
    assert [one.kind for one in left.events] == [one.kind for one in whole.events]
