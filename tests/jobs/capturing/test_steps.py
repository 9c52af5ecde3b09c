"""Which step is recorded, what it lacks, and what in it learns nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

import sim
from sim.config.errors import InputError
from sim.jobs.capturing.capture import capture
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.setup import RecordedScenario
from sim.jobs.recorded.work import work_of

Body = Callable[[int, nn.Module, torch.optim.Optimizer], object]


def learn(model: nn.Module) -> None:
    model(torch.ones(8, 16, device="cuda")).square().mean().backward()


def plain(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    learn(model)
    optimizer.step()


def trained(body: Body, steps: int = 8, **choices: Any) -> Recording:
    def train() -> None:
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(1, steps + 1):
            body(number, model, optimizer)

    return capture(train, world=1, **choices)[0]


def products(own: Recording, *, aside: bool = False) -> int:
    names = [
        own.operators[event.operator].name
        for event in own.events
        if event.kind == "kernel" and event.aside == aside
    ]
    return sum(name in ("aten.mm", "aten.addmm") for name in names)


PRODUCTS = 2 + 3  # forward and backward of two layers, the first on data


def test_two_steps_of_an_optimizer_behind_a_backward_pass_are_one_update() -> None:
    def twice(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        plain(number, model, optimizer)
        optimizer.step()

    own = trained(twice)
    assert products(own) == PRODUCTS
    assert [event.phase for event in own.events if event.kind == "kernel"].count("optimizer") == 2
    assert own.notes == ()


def test_a_step_without_a_backward_pass_says_so() -> None:
    def updated(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if number == 1:
            learn(model)
        optimizer.step()
        sim.step()

    notes = " ".join(trained(updated).notes)
    assert "holds no backward pass" in notes
    assert "holds no forward pass" in notes


@pytest.mark.parametrize("often", [2, 3])
def test_what_is_sampled_now_and_then_is_not_of_the_step(often: int) -> None:
    def sampled(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        plain(number, model, optimizer)
        if number % often == 1:  # behind the first step
            with torch.no_grad():
                for _ in range(50):
                    model(torch.ones(1, 16, device="cuda"))

    own = trained(sampled)
    assert (products(own), products(own, aside=True)) == (PRODUCTS, 0)
    (note,) = own.notes
    assert "step 3 is recorded; step 2 runs other products (100 in parts without a gradient" in note
    assert "test_steps.py" in note


@pytest.mark.parametrize(("often", "waits"), [(1, 1), (3, 0)])
def test_a_loss_printed_now_and_then_is_not_of_the_step(often: int, waits: int) -> None:
    """One that is printed each time is, for which no third step has to run."""
    seen = []

    def printed(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        plain(number, model, optimizer)
        if number % often == 1 % often:
            seen.append(next(model.parameters()).sum().item())

    own = trained(printed)
    assert len(seen) == 1
    assert [event.kind for event in own.events].count("sync") == waits
    assert ["step 2 waits for the device at" in note for note in own.notes] == [True] * (1 - waits)


@pytest.mark.parametrize("world", [1, 4])
def test_ranks_that_never_communicate_are_told(world: int) -> None:
    def train() -> None:
        model = nn.Linear(16, 16).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(2):
            plain(number, model, optimizer)

    (own,) = capture(train, world=world)
    assert any("each is a job of its own" in note for note in own.notes) == (world == 4)
    scenario = RecordedScenario(record=(replace(own, samples=4),), topology="dgx-h100-ndr")
    result = sim.run(scenario)
    assert result.inputs.batch == 4  # not the samples of all jobs
    assert result.samples_per_second == pytest.approx(4 * world / result.step_time)


def test_steps_without_a_backward_pass_are_refused_by_that_name() -> None:
    with pytest.raises(InputError, match=r"no backward pass ran.*call backward\(\)"):
        trained(lambda _, model, optimizer: optimizer.step())


def growing(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(number):
        learn(model)
    optimizer.step()


@pytest.mark.parametrize(("asked", "passes"), [((3, 3), 3), ((4, 6), 4 + 5 + 6)])
def test_steps_are_chosen_by_their_numbers(asked: tuple[int, int], passes: int) -> None:
    def train() -> None:
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(1, 8):
            growing(number, model, optimizer)

    (own,) = capture(train, world=1, steps=asked)
    assert products(own) == PRODUCTS * passes
    with pytest.raises(InputError, match="ended after 7 steps"):
        capture(train, world=1, steps=(9, 9))
    with pytest.raises(InputError, match="step 1 holds the set-up"):
        capture(train, world=1, steps=(1, 1))


def marked(mark: Callable[[], object], marks: str) -> Recording:
    """A script that steps its optimizer every other iteration, and marks each."""

    def iteration(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        learn(model)
        if number % 2:
            optimizer.step()
        mark()

    return trained(iteration, marks=marks)


def test_a_script_says_where_its_steps_end() -> None:
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    push: Any = torch.cuda.nvtx
    by = [
        marked(sim.step, ""),
        marked(lambda: push.range_push("iteration 3"), "nvtx=iteration"),
        marked(lambda: profiler.step(), "profiler"),
    ]
    assert {products(own) for own in by} == {PRODUCTS}
    assert products(marked(lambda: None, "")) == 2 * PRODUCTS


def test_critics_that_step_more_often_are_of_the_step() -> None:
    def train() -> None:
        critic, maker = (nn.Linear(16, 16).to("cuda") for _ in range(2))
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (critic, maker)]
        for _ in range(3):
            for _ in range(4):
                learn(critic)
                optimizers[0].step()
            learn(maker)
            optimizers[1].step()

    (own,) = capture(train, world=1)
    assert products(own) == 2 * (4 + 1)


def test_what_learns_nothing_is_named_with_its_share_and_is_no_work_of_the_model() -> None:
    def evaluated(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        plain(number, model, optimizer)
        with torch.inference_mode():
            for _ in range(5):
                model(torch.ones(8, 16, device="cuda"))

    own, alone = trained(evaluated), trained(plain)
    (note,) = own.notes
    assert "no gradient flows through" in note
    assert "67% of its FLOPs" in note  # ten products of fifteen
    assert work_of(own).model_flops == work_of(alone).model_flops
    assert work_of(own).executed_flops == 3 * work_of(alone).executed_flops


def test_what_runs_again_in_a_backward_pass_learns() -> None:
    from torch.utils.checkpoint import checkpoint

    def again(number: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            torch.ones(3, device="cuda")
        x = torch.ones(8, 16, device="cuda", requires_grad=True)
        checkpoint(model, x, use_reentrant=True).square().mean().backward()
        optimizer.step()

    own = trained(again)
    assert products(own, aside=True) == 0
    assert own.notes == ()


def test_weights_that_no_optimizer_has_are_named() -> None:
    def train() -> None:
        model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 32)).to("cuda")
        optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
        for _ in range(3):
            learn(model)
            optimizer.step()

    (own,) = capture(train, world=1)
    assert own.notes == (
        "544 parameters get gradients but belong to no optimizer; optimizers update 272",
    )


class Values(nn.Module):
    """Layers that look their tokens up themselves, too, as nanochat's do."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(5))
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        looked = [table(tokens) for table in self.tables]
        return self.head(torch.stack(looked).sum(0))  # type: ignore[no-any-return]


class Conditioned(nn.Module):
    """A model of images that are of classes, as DiT is."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(10, 16), nn.Linear(16, 16)

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        images = torch.ones(*labels.shape, 4, 16, device="cuda")
        return self.layer(images + self.table(labels)[:, None])  # type: ignore[no-any-return]


def learnt(model: Callable[[], nn.Module], step: Callable[[nn.Module], torch.Tensor]) -> object:
    def train() -> None:
        made = model().to("cuda")
        optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
        for _ in range(3):
            step(made).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    done = work_of(capture(train, world=1)[0])
    return done.samples, done.tokens


def labelled(model: nn.Module, *shape: int) -> torch.Tensor:
    tokens = torch.zeros(shape, dtype=torch.int64, device="cuda")
    return nn.functional.cross_entropy(model(tokens).flatten(0, -2), tokens.flatten())


def shifted(model: nn.Module) -> torch.Tensor:
    tokens = torch.zeros((4, 32), dtype=torch.int64, device="cuda")
    return nn.functional.cross_entropy(
        model(tokens)[:, :-1].flatten(0, -2), tokens[:, 1:].flatten()
    )


def classified(model: nn.Module) -> torch.Tensor:
    images = torch.ones(6, 16, device="cuda")
    labels = torch.zeros(6, dtype=torch.int64, device="cuda")
    return nn.functional.cross_entropy(model(images), labels)


def unlabelled(model: nn.Module) -> torch.Tensor:
    found: torch.Tensor = model(torch.zeros(8, dtype=torch.int64, device="cuda"))
    return found.mean()


@pytest.mark.parametrize(
    ("model", "step", "known"),
    [
        (Values, lambda model: labelled(model, 4, 32), (4, 128)),
        (Values, lambda model: labelled(model, 128), (1, 128)),  # packed
        (Values, lambda model: labelled(model, 4, 32) + labelled(model, 4, 32), (8, 256)),
        (Values, shifted, (4, 128)),
        (Values, unlabelled, (0, 0)),
        (Conditioned, unlabelled, (0, 0)),
        (lambda: nn.Linear(16, 10), classified, (6, 0)),
    ],
)
def test_tokens_and_samples_are_those_of_labels_or_unknown(
    model: Callable[[], nn.Module], step: Callable[[nn.Module], torch.Tensor], known: object
) -> None:
    assert learnt(model, step) == known


def test_samples_are_those_of_the_loader_or_as_they_are_said() -> None:
    def train() -> None:
        model = nn.Linear(16, 16).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for (images,) in DataLoader(TensorDataset(torch.ones(64, 16)), batch_size=8):
            model(images.to("cuda")).mean().backward()
            optimizer.step()
            with torch.no_grad():
                next(iter(DataLoader(TensorDataset(torch.ones(64, 16)), batch_size=32)))

    assert work_of(capture(train, world=1)[0]).samples == 8
    assert work_of(capture(train, world=1, samples=24)[0]).samples == 24


@pytest.mark.parametrize("ahead", [False, True])
def test_each_pass_learns_from_a_batch_when_or_however_a_loader_hands_it_over(
    *, ahead: bool
) -> None:
    """Two passes an update; batches are of a sampler's, and do not begin with a tensor of them."""
    batches = BatchSampler(range(16), batch_size=4, drop_last=True)
    images: Any = [torch.ones(16)] * 16
    loader = DataLoader(images, batch_sampler=batches, collate_fn=lambda found: ([found[0]], found))

    def train() -> None:
        model = nn.Linear(16, 16).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        whole = list(loader) if ahead else loader  # all before the first step
        for number, (_, found) in enumerate(whole):
            model(torch.stack(found).to("cuda")).mean().backward()
            if number % 2:
                optimizer.step()

    assert work_of(capture(train, world=1)[0]).samples == 8


def of_many_bytes(images: list[torch.Tensor]) -> torch.Tensor:
    """More elements than a tensor of the host has that is kept real."""
    batch = torch.zeros(len(images), 1 << 22, dtype=torch.uint8)
    batch[:, :16] = torch.stack(images)
    return batch


def test_workers_of_a_loader_hand_large_batches_over() -> None:
    def train() -> None:
        model = nn.Linear(1 << 22, 1).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        images = list(torch.ones(64, 16, dtype=torch.uint8))
        for batch in DataLoader(
            images, batch_size=8, num_workers=1, collate_fn=of_many_bytes, timeout=60
        ):
            model(batch.to("cuda").float()).mean().backward()
            optimizer.step()

    assert work_of(capture(train, world=1)[0]).samples == 8


class Container(torch.optim.Optimizer):
    """Optimizers in an optimizer, as torchtitan has them."""

    def __init__(self, model: nn.Sequential) -> None:
        self.inner = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]
        super().__init__(list(model.parameters()), {})

    def step(self, closure: Any = None) -> None:
        for optimizer in self.inner:
            optimizer.step()


@pytest.mark.parametrize("idle", [False, True], ids=["container", "one that never steps"])
def test_a_step_is_one_update_whatever_optimizers_were_made(*, idle: bool) -> None:
    def train() -> None:
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)).to("cuda")
        optimizer = Container(model)
        unused = torch.optim.SGD(model.parameters(), lr=0.1) if idle else None
        for _ in range(14):
            learn(model)
            optimizer.step()
            optimizer.zero_grad()
        del unused

    assert products(capture(train, world=1)[0]) == PRODUCTS


def test_parameters_are_the_models_where_an_optimizer_holds_a_part_of_them() -> None:
    def train() -> None:
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)).to("cuda")
        weights = list(model.parameters())
        part = nn.Parameter(
            torch.cat([weight.detach().flatten() for weight in weights]).chunk(4)[0]
        )
        optimizer = torch.optim.SGD([part], lr=0.1)
        for _ in range(3):
            learn(model)
            grads = torch.cat(
                [weight.grad.flatten() for weight in weights if weight.grad is not None]
            )
            part.grad = grads.chunk(4)[0]
            model.zero_grad()
            optimizer.step()

    assert capture(train, world=1)[0].parameters == 2 * (16 * 16 + 16)


def by_hand(*, marked: bool, steps: int = 5, passes: int = 1) -> Recording:
    """Weights without an optimizer: w <- w - g / 10 behind so many passes."""

    def train() -> None:
        weight = torch.ones(16, 16, device="cuda", requires_grad=True)
        for _ in range(steps):
            for _ in range(passes):
                (torch.ones(8, 16, device="cuda") @ weight).square().mean().backward()
            with torch.no_grad():
                weight -= weight.grad / 10
            weight.grad = None
            if marked:
                sim.step()

    return capture(train, world=1)[0]


def test_steps_without_an_optimizer_end_where_the_script_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = 128  # forward, and backward to the weights
    assert products(by_hand(marked=True, steps=2, passes=passes)) == (1 + 1) * passes
    with pytest.raises(InputError, match=r"took 0 steps of an optimizer.* call sim.step\(\)"):
        by_hand(marked=False)
    monkeypatch.setattr("sim.jobs.capturing.steps._MOST_PASSES", 4)
    with pytest.raises(InputError, match=r"made no optimizer in 4 .* call sim.step\(\)"):
        by_hand(marked=False)


def test_a_module_that_torch_script_compiles_builds_tensors() -> None:
    def build() -> None:
        filled = torch.jit.script(_filled)  # torch.distributed.optim compiles such functions
        assert filled(2.0).item() == 2.0
        trained_once()

    def trained_once() -> None:
        model = nn.Linear(16, 16).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(1, 4):
            plain(number, model, optimizer)

    assert capture(build, world=1)[0].parameters == 16 * 16 + 16


def _filled(value: float) -> torch.Tensor:
    return torch.tensor([value])
