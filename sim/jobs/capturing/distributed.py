"""How do process groups, DDP, FSDP and DTensor work in a fake world of ranks?"""

from collections.abc import Callable
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches

WHOLE = "_elements_when_whole"  # attribute of a parameter that FSDP1 has flattened


class Aside:
    """A lock that DTensor holds while it computes shapes on whole tensors. The device does none of
    this work. `depth` counts the holders."""

    depth = 0

    def __enter__(self) -> None:
        Aside.depth += 1

    def __exit__(self, *_: object) -> None:
        Aside.depth -= 1


class _Chunks:
    """The chunks of a tensor for all ranks. A chunk is made when it is read, as FSDP2 reads only
    two chunks (torch/distributed/fsdp/_fully_shard/_fsdp_common.py, `_chunk_with_empty`)."""

    def __init__(self, tensor: Any, number: int, dim: int) -> None:
        self.tensor, self.number, self.dim = tensor, number, dim
        self.step = -(-tensor.size(dim) // number)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Any:
        whole = self.tensor.size(self.dim)
        start = min(index * self.step, whole)
        return self.tensor.narrow(self.dim, start, min(self.step, whole - start))


def install(torch: Any, patches: Patches, log: Log, stream: Any, *, world: int, rank: int) -> None:
    """Patch torch.distributed: `init_process_group` makes a fake group, whatever the backend."""
    dist, c10d = torch.distributed, import_module("torch.distributed.distributed_c10d")
    device_mesh = import_module("torch.distributed.device_mesh")
    fsdp = import_module("torch.distributed.fsdp._fully_shard._fsdp_param")
    propagation = import_module("torch.distributed.tensor._sharding_prop")
    fake = import_module("torch.testing._internal.distributed.fake_pg")
    start, make = c10d.init_process_group, c10d._new_process_group_helper
    asked: dict[int, str] = {}  # the backend that the script chose for each group

    def init_process_group(backend: Any = None, *_: Any, **__: Any) -> None:
        if not dist.is_initialized():
            start("fake", store=fake.FakeStore(), rank=rank, world_size=world)
            asked[id(dist.group.WORLD)] = str(backend or "nccl")

    def made(size: int, place: int, ranks: Any, backend: Any, *rest: Any, **more: Any) -> Any:
        group, store = make(size, place, ranks, "fake", *rest, **more)
        asked[id(group)] = str(backend or "nccl")
        return group, store

    def get_backend(group: Any = None) -> str:
        named = asked.get(id(group or dist.group.WORLD), "nccl")
        return named.rpartition("cuda:")[2].partition(",")[0].replace("fake", "nccl")

    for module in (dist, c10d, device_mesh):
        if hasattr(module, "init_process_group"):
            patches.set(module, "init_process_group", init_process_group)
    patches.set(c10d, "_new_process_group_helper", made)
    patches.set(dist, "get_backend", get_backend)
    patches.set(dist, "is_nccl_available", lambda: True)
    patches.also(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
    patches.set(torch._C._distributed_c10d.FakeWork, "wait", _wait(log, stream))
    _futures(torch, patches, log)

    def chunks(*args: Any, **given: Any) -> _Chunks:
        log.note_place("wrapper")
        return _Chunks(*args, **given)

    patches.set(fsdp, "_chunk_with_empty", chunks)
    patches.set(propagation.ShardingPropagator, "_fake_mode_lock", Aside())
    _fsdp1(patches, log)
    _ddp(torch, patches, log)
    _spawns(torch, patches, rank)


def _spawns(torch: Any, patches: Patches, rank: int) -> None:
    """Patch `spawn`: a script that starts a process for each GPU runs as one of these processes."""

    def spawn(run: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        run(rank % nprocs, *args)

    multiprocessing = import_module("torch.multiprocessing")
    for owner in (multiprocessing, import_module("torch.multiprocessing.spawn")):
        for name in ("spawn", "start_processes"):
            if hasattr(owner, name) and callable(getattr(owner, name)):
                patches.set(owner, name, spawn)


def asynchronous(torch: Any, patches: Patches, fake: Any) -> None:
    """Let functional collectives be awaited where their results are first read. Otherwise torch
    would wait at once: it assumes that computation on fake tensors traces a graph."""
    functional = import_module("torch.distributed._functional_collectives")
    shown = import_module("torch._subclasses.fake_tensor").unset_fake_temporarily
    asked, key = functional._are_we_tracing, torch._C._TorchDispatchModeKey.FAKE

    def tracing() -> bool:
        if torch._C._get_dispatch_mode(key) is not fake:
            return bool(asked())
        with shown():
            return bool(asked())

    patches.set(functional, "_are_we_tracing", tracing)


def _wait(log: Log, stream: Any) -> Any:
    def wait(work: Any, *_: Any) -> bool:
        if work.seq_id > 0:  # otherwise the collective is among CPUs
            log.add("done", stream(), mark=work.seq_id)
        return True

    return wait


def _fsdp1(patches: Patches, log: Log) -> None:
    """Patch FSDP1: a parameter's `WHOLE` is the number of its elements before sharding."""
    flat = import_module("torch.distributed.fsdp._flat_param").FlatParameter
    init = flat._init_metadata

    def initialised(_: Any, parameter: Any, *args: Any, **kwargs: Any) -> None:
        log.note_place("wrapper")
        init(parameter, *args, **kwargs)
        setattr(parameter, WHOLE, sum(parameter._numels))
        for weight, elements in zip(parameter._params or (), parameter._numels, strict=False):
            setattr(weight, WHOLE, elements)

    patches.set(flat, "_init_metadata", classmethod(initialised))


def _ddp(torch: Any, patches: Patches, log: Log) -> None:
    """Patch DDP's buckets and hooks, and leave out its checks of shapes and its timing."""
    dist, ddp = torch.distributed, import_module("torch.nn.parallel.distributed")
    _ddp_buckets(dist, ddp, patches, log)
    _ddp_hook(torch, ddp.DistributedDataParallel, patches)
    patches.set(ddp, "_verify_param_shape_across_processes", lambda *_, **__: None)
    patches.set(ddp, "_sync_module_states", lambda *_, **__: None)
    if torch.version.cuda:  # else the reducer times itself with events of CUDA (reducer_cuda.cpp)
        patches.set(dist.Reducer, "prepare_for_forward", lambda self: None)
    patches.set(dist.Logger, "set_runtime_stats_and_log", lambda self: None)


def _ddp_buckets(dist: Any, ddp: Any, patches: Patches, log: Log) -> None:
    """Patch DDP to make its buckets in the order in which gradients come, as real DDP does from the
    second step on. Until a backward pass has shown this order, the reverse order of the weights
    stands in. If weights may go unused, torch keeps the first buckets (reducer.hpp,
    `should_rebuild_buckets`)."""
    model, assign = ddp.DistributedDataParallel, dist._compute_bucket_assignment_by_size
    help_init, forward = model._ddp_init_helper, model.forward
    came: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()  # by model: order of weights
    limits: list[int] = []
    order: list[int] = []

    def helped(self: Any, weights: list[Any], *args: Any, **kwargs: Any) -> Any:
        log.note_place("wrapper")
        usual = getattr(self, "bucket_bytes_cap_default", True)
        first = dist._DEFAULT_FIRST_BUCKET_BYTES if usual else self.bucket_bytes_cap
        limits[:] = [first, self.bucket_bytes_cap]
        order[:] = came.get(self) or range(len(weights))[::-1]
        with log.buffers():
            return help_init(self, weights, *args, **kwargs)

    def buckets(weights: list[Any], asked: list[int], *rest: Any) -> Any:
        """Assign buckets as `rebuild_buckets` does (torch/csrc/distributed/c10d/reducer.cpp)."""
        if len(asked) > 1:
            return assign(weights, asked, *rest)
        found, sizes = assign([weights[place] for place in order], limits, *rest)
        return [[order[i] for i in bucket] for bucket in found][::-1], sizes[::-1]

    def rebuilt(self: Any) -> None:
        """Build the reducer again if the order has changed, as DDP does when it is unpickled."""
        weights, sparse = self._build_params_for_reducer()
        shown = came.get(self)
        if shown is None:
            came[self] = _as_they_come(weights)
        elif len(shown) == len(weights) and shown != order:
            names = self._build_debug_param_to_name_mapping(weights)
            self._ddp_init_helper(weights, sparse, names, self.static_graph)
            for hook, state in self._comm_hooks:
                dist._register_comm_hook(self.reducer, state, hook)

    def with_buckets(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.find_unused_parameters:
            rebuilt(self)
        return forward(self, *args, **kwargs)

    patches.set(model, "forward", with_buckets)
    patches.set(ddp.dist, "_compute_bucket_assignment_by_size", buckets)
    patches.set(model, "_ddp_init_helper", helped)
    patches.set(dist.Reducer, "_rebuild_buckets", lambda self: False)


def _as_they_come(weights: list[Any]) -> list[int]:
    """The places of weights in the order of their first gradients. Hooks fill this list during the
    backward pass."""
    found: list[int] = []
    for place, weight in enumerate(weights):

        def came(_: Any, place: int = place) -> None:
            if place not in found:
                found.append(place)

        weight.register_post_accumulate_grad_hook(came)
    return found


def _ddp_hook(torch: Any, model: Any, patches: Patches) -> None:
    """Patch DDP to reduce gradients by a hook, as the reducer itself needs a result that a fake
    group does not give. The hook is the script's, or else the hook of `_without_hook`. DDP's
    built-in hooks in C++ are replaced by DDP's hooks in Python."""
    dist, forward = torch.distributed, model.forward
    reduce, came = _without_hook(torch)

    def with_hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._comm_hooks:
            self.register_comm_hook(self.process_group, reduce)
            for weight in self.parameters() if self.gradient_as_bucket_view else ():
                if weight.requires_grad:
                    weight.register_post_accumulate_grad_hook(came)
        return forward(self, *args, **kwargs)

    def built_in(self: Any, kind: Any) -> None:
        hooks = import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
        half = kind == dist.BuiltinCommHookType.FP16_COMPRESS
        hook = hooks.fp16_compress_hook if half else hooks.allreduce_hook
        self.register_comm_hook(self.process_group, hook)

    patches.set(model, "forward", with_hook)
    patches.set(model, "_register_builtin_comm_hook", built_in)


def _without_hook(torch: Any) -> tuple[Callable[..., Any], Callable[[Any], None]]:
    """A hook that does what DDP's reducer does if no hook is registered. The second function is
    called for each gradient that is a view of its bucket (torch/csrc/distributed/c10d/reducer.cpp).

    The reducer divides a gradient while it copies the gradient into its bucket, in a kernel that
    moves as many bytes as a copy. It divides a view in place (`mark_variable_ready_dense`). At the
    end of a backward pass it waits for all sums (`finalize_backward`).
    """
    dist = torch.distributed
    stored: dict[int, int] = {}  # by weight: the storage of its gradient

    def came(weight: Any) -> None:
        stored[id(weight)] = id(weight.grad.untyped_storage())

    def reduce(group, bucket):  # type: ignore[no-untyped-def]  # torch looks at annotations
        group, buffer, weights = group or dist.group.WORLD, bucket.buffer(), bucket.parameters()
        for weight, gradient in zip(weights, bucket.gradients(), strict=True):
            if stored.get(id(weight)) == id(buffer.untyped_storage()):
                gradient.div_(dist.get_world_size(group))
        work = dist.all_reduce(buffer, group=group, async_op=True)
        if id(weights[0]) in stored:  # otherwise the copies out of the bucket wait
            torch.autograd.Variable._execution_engine.queue_callback(work.wait)
        future = torch.futures.Future()
        future.set_result(buffer)
        return future

    return reduce, came


def _futures(torch: Any, patches: Patches, log: Log) -> None:
    """Patch the futures of collectives to hold their results. Callbacks of a collective run on a
    separate stream, for which a backward pass waits at its end
    (torch/csrc/distributed/c10d/Work.hpp)."""
    beside: list[Any] = []

    def ended(event: Any) -> None:
        torch.cuda.current_stream().wait_event(event)

    class Future(torch.futures.Future):  # type: ignore[misc]
        def then(self, callback: Any) -> "Future":
            if not beside:
                beside.append(torch.cuda.Stream())
            with torch.cuda.stream(beside[0]):
                made = _completed(callback(self))
                event = beside[0].record_event()
            if torch._C._current_graph_task_id() < 0:
                ended(event)
            else:
                engine = torch.autograd.Variable._execution_engine
                engine.queue_callback(lambda: ended(event))
            return made

        def add_done_callback(self, callback: Any) -> None:
            self.then(callback)

    def _completed(value: Any) -> Future:
        future = Future()
        future.set_result(value)
        return future

    def of_work(work: Any) -> Future:
        return _completed([tensor() for tensor in log.written.get(work.seq_id, ())])

    patches.set(torch._C._distributed_c10d.FakeWork, "get_future", of_work)
