"""Tokens go to experts as a law says, and what depends on their counts has its true shape."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import sim
from sim.interface.cli.main import main
from sim.jobs.capturing.capture import capture_script
from sim.jobs.capturing.router import Router, routing_of
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.work import work_of
from sim.model.experts.routing import shares
from tests.jobs.capturing.conftest import MODEL
from tests.jobs.capturing.test_capture import BATCH, LAYERS, LENGTH, VOCABULARY, WIDTH
from tests.lazy import torch

EXPERTS, TOP, RANKS = 8, 2, 4
# Tokens are sorted by expert, counts are exchanged, rows follow: the dispatch of Megatron-LM's
# and torchtitan's all-to-all dispatchers; each expert then takes its rows (a mask, as in
# transformers).
EXPERT_PARALLEL = f"""
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("nccl")
size = {RANKS}
shape = dist.get_world_size() // size, size
mesh = init_device_mesh("cuda", shape, mesh_dim_names=("dp", "ep"))
group = mesh.get_group("ep")


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, {EXPERTS}, bias=False)
        own = {EXPERTS} // size
        self.up = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH, bias=False) for _ in range(own))
        self.down = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH, bias=False) for _ in range(own))

    def forward(self, x):
        flat = x.flatten(0, 1)
        score, chosen = self.router(flat).softmax(-1).topk({TOP}, dim=-1)
        counts = torch.bincount(chosen.flatten(), minlength={EXPERTS})
        order = chosen.flatten().argsort()
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=group)
        sends = counts.view(size, -1).sum(1).tolist()
        takes = theirs.view(size, -1).sum(1).tolist()
        rows = functional.all_to_all_single_autograd(flat[order // {TOP}], takes, sends, group)
        place = torch.arange(len(counts), device=x.device).view(size, -1)[0].repeat(size)
        expert = torch.repeat_interleave(place, theirs)
        done = torch.zeros_like(rows)
        for number, (up, down) in enumerate(zip(self.up, self.down)):
            mine = torch.where(expert == number)[0]
            done[mine] = down(F.gelu(up(rows[mine])))
        back = functional.all_to_all_single_autograd(done, sends, takes, group)
        weighted = back * score.flatten()[order, None]
        return torch.zeros_like(flat).index_add(0, order // {TOP}, weighted).view_as(x)


model = Model().to("cuda")
for layer in model.layers:
    layer.up, layer.down = Experts().to("cuda"), nn.Identity()
train(model)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("experts") / "train.py"
    path.write_text(MODEL + EXPERT_PARALLEL)
    return path


def rows_of(own: Recording) -> list[int]:
    """Rows that this rank's experts compute in the forward pass, layer by layer."""
    forward = (e for e in own.events if e.kind == "kernel" and e.phase == "forward")
    products = [own.operators[event.operator] for event in forward]
    up = (WIDTH, 4 * WIDTH)
    return [
        one.inputs[0].shape[0] for one in products if one.inputs[1:2] and one.inputs[1].shape == up
    ]


def test_balanced_experts_work_equally(script: Path) -> None:
    (own,) = capture_script(script, world=8)
    tokens = BATCH * LENGTH
    assert rows_of(own) == [tokens * TOP * RANKS // EXPERTS] * (LAYERS * EXPERTS // RANKS)
    dense = LAYERS * (4 * WIDTH**2 + WIDTH * EXPERTS) + WIDTH * VOCABULARY
    experts = LAYERS * TOP * 8 * WIDTH**2
    attention = LAYERS * 12 * tokens * LENGTH * WIDTH
    assert work_of(own).model_flops == 6 * (dense + experts) * tokens + attention
    sent = [e.bytes for e in own.events if e.name == "all_to_all" and e.phase == "forward"]
    counts, rows = 8 * EXPERTS, 4 * tokens * TOP * WIDTH  # int64; autocast leaves these in fp32
    assert sent == [counts, rows, rows] * LAYERS


def test_favoured_experts_work_more(script: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts.csv"
    counts.write_text("5,1,1,1,4,2,1,1\n1,1,1,1,1,1,1,9\n")
    (own,) = capture_script(script, world=8, routing=str(counts))
    sent = BATCH * LENGTH * TOP * RANKS  # by all ranks, which choose alike
    # Of 16 tokens 5 and 1; the second layer's last expert is chosen by every token and no more.
    assert rows_of(own) == pytest.approx(
        [sent * 5 / 16, sent / 16, sent / 14, sent / 14], abs=RANKS
    )


def chosen(law: str, tokens: int, layer: int = 0) -> Any:
    router = Router(torch, routing_of(law))
    asked = [torch.nn.Module() for _ in range(layer + 1)]
    for self in asked:  # noqa: B007  # layers are told apart by the module at work
        found: Any = router.chosen((tokens, EXPERTS), -1, TOP)
    return found


@pytest.mark.parametrize("law", ["balanced", "zipf=0.5", "dirichlet=10"])
def test_tokens_choose_different_experts_as_often_as_the_law_says(law: str) -> None:
    tokens = 4096
    picks = chosen(law, tokens)
    assert (picks[:, 0] != picks[:, 1]).all()
    share = shares(routing_of(law), EXPERTS, 0, 1)
    assert share.max() < 1 / TOP
    often = np.bincount(picks.flatten().numpy(), minlength=EXPERTS)
    assert often == pytest.approx(TOP * tokens * share, abs=1)


def test_a_layer_that_runs_again_chooses_the_same() -> None:
    assert torch.equal(chosen("zipf", 64, layer=1), chosen("zipf", 64, layer=1))
    assert not torch.equal(chosen("zipf", 64), chosen("zipf", 64, layer=1))


@pytest.mark.parametrize(
    ("law", "said"),
    [
        ("poisson", "is no known law of routing"),
        ("balanced=2", "is no known law of routing"),
        ("zipf=much", "is no number"),
        ("zipf=-1", "exponent"),
        ("nowhere.csv", "nowhere.csv"),
        ("short.csv", "more layers with experts"),
        ("narrow.csv", "rows of 3 counts"),
    ],
)
def test_routing_that_is_none_is_refused(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, law: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.csv").write_text("1,1,1,1,1,1,1,1\n")
    Path("narrow.csv").write_text("1,2,3\n" * LAYERS)
    command = ["capture", str(script), "--world", "8", "--routing", law, "--out", "x.json"]
    answer = CliRunner().invoke(main, command)
    assert answer.exit_code == 2
    assert said in answer.stderr.splitlines()[-1]


def test_ranks_tell_one_another_what_this_one_holds() -> None:
    """Counts in lists of tensors, too; what nobody has written yet is zero in every capture."""

    def train() -> None:
        import torch.distributed as dist

        dist.init_process_group("nccl")
        mine = torch.arange(RANKS, device="cuda")
        theirs = [torch.empty_like(mine) for _ in range(RANKS)]
        assert not torch.stack(theirs).any()
        dist.all_gather(theirs, mine)
        assert torch.stack(theirs).tolist() == [[*range(RANKS)]] * RANKS
        dist.all_to_all(theirs, [mine + number for number in range(RANKS)])
        assert torch.stack(theirs).tolist() == [[*range(1, 1 + RANKS)]] * RANKS
        dist.reduce_scatter(mine, [mine + number for number in range(RANKS)])
        assert mine.tolist() == [RANKS * (number + 1) for number in range(RANKS)]
        weight = torch.ones(2, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(2):
            weight.sum().backward()
            optimizer.step()

    (own,) = sim.capture(train, world=RANKS, rank=1)
    assert own.rank == 1
