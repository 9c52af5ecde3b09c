"""Which operators does a script run? The recorder sees them below autograd and above fake
tensors, after DTensors have become local tensors."""

from collections.abc import Callable
from importlib import import_module
from math import prod
from typing import Any
from weakref import ref

from sim.jobs.capturing.collective_results import keep_results
from sim.jobs.capturing.contents import TensorContents
from sim.jobs.capturing.cuda import Streams
from sim.jobs.capturing.distributed import Aside
from sim.jobs.capturing.exchange import Exchange
from sim.jobs.capturing.gradients import Gradients
from sim.jobs.capturing.lines import SourceLines
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.operators import ROUNDED, described, tf32
from sim.jobs.capturing.steps import ASIDE
from sim.jobs.capturing.values import UnknownValues
from sim.jobs.recorded.axes import group_of
from sim.jobs.recorded.kernels import NAMESPACES, call_of, event_of, is_free, is_product, is_shape
from sim.jobs.recorded.recording import Operator

# Calls that send several collectives at once: the name of a single one of these collectives, and
# how many lists of tensors the call takes.
_COALESCED = {
    "allreduce_coalesced_": ("allreduce_", 1),
    "allgather_into_tensor_coalesced_": ("_allgather_base_", 2),
    "reduce_scatter_tensor_coalesced_": ("_reduce_scatter_base_", 2),
}
_LARGE = 1 << 22  # elements; smaller tensors on the host stay real


def mode(torch: Any, recorder: "Recorder") -> Any:
    """The dispatch mode through which a recorder sees operators."""

    class Mode(import_module("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:  # dynamo and inductor trace without this mode
            return True

        def __torch_dispatch__(
            self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return recorder.dispatched(func, kinds, args, kwargs or {})

    recorder.mode = Mode()
    return recorder.mode


class _Function:
    """Facts about an operator that hold for all its calls."""

    def __init__(self, torch: Any, func: Any) -> None:
        self.func = func  # kept, so no other object gets its `id`
        self.asks_device = func is torch.ops.prim.device.default
        operator = isinstance(func, torch._ops.OpOverload)
        if not operator and "flex_attention" in str(func):
            raise NotImplementedError("flex_attention that is not compiled")
        self.passes = not operator or func.namespace in ("prim", "profiler")
        self.name = "" if self.passes else func._overloadpacket.__name__
        self.calls = not self.passes and func.namespace in NAMESPACES
        self.free = self.passes or is_free(self.name, view=func.is_view)
        # Some composed operators, which have no kernel of their own, arrive here undecomposed:
        # x.to(...) and x.reshape(...), which may copy, and in inference mode all composed
        # operators.
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        composed = not self.passes and func._can_decompose()
        self.unfolds = composed and not has_kernel(func.name(), "CUDA")
        self.view = not self.passes and is_shape(self.name, view=func.is_view)
        self.rounded = self.name in ROUNDED
        self.product = not self.passes and is_product(self.name)


class Recorder:
    """Writes operators to a log; `line` returns the number of the script's running line."""

    def __init__(
        self,
        torch: Any,
        log: Log,
        streams: Streams,
        line: SourceLines,
        *,
        exchange: Exchange,
        contents: TensorContents,
        values: UnknownValues,
        gradients: Gradients,
    ) -> None:
        self.torch, self.log, self.streams, self.line = torch, log, streams, line
        self.exchange, self.contents, self.values = exchange, contents, values
        self.gradients = gradients
        fake = import_module("torch._subclasses.fake_tensor")
        self.fake, self.unfaked = fake.FakeTensor, fake.unset_fake_temporarily
        self.plain = {torch.Tensor, torch.nn.Parameter}
        self.later = import_module(
            "torch.distributed._functional_collectives"
        ).AsyncCollectiveTensor
        c10d = torch._C._distributed_c10d
        self.group, self.work = c10d.ProcessGroup, c10d.FakeWork
        self.named_group = c10d._resolve_process_group
        self.functions: dict[int, _Function] = {}  # by their identities
        self.numbers: dict[Any, int] = {}  # numbers of operators in the log, by the key of a call
        self.forward_lines: dict[int, int] = {}  # by the sequence number of autograd's nodes
        self.numbered = torch.autograd._get_sequence_nr()
        self.mode: Any = None  # the dispatch mode that calls `dispatched`

    def dispatched(self, func: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator on fake tensors, and record it if it runs on the device."""
        known = self.functions.get(id(func)) or self._function(func)
        if known.asks_device:
            return args[0].fake_device
        if not all(kind in self.plain or issubclass(kind, self.fake) for kind in kinds):
            self.gradients.unfolds(self.contents.tensors(args, kwargs))
            return NotImplemented
        if Aside.depth or known.passes:
            return func(*args, **kwargs)
        if known.unfolds:
            with self.mode:
                return func.decompose(*args, **kwargs)
        if known.name == "is_pinned":  # all memory of the host counts as pinned
            return True
        if known.calls and known.name == "barrier":
            return self._met_all(func, args, kwargs)
        if self.plain.issuperset(kinds) and self._of_host(args, kwargs):
            pinned = {"pin_memory": False} if kwargs.get("pin_memory") else {}
            with self.unfaked():
                return func(*args, **{**kwargs, **pinned})
        if known.name == "_local_scalar_dense":
            return self._value(args[0])
        if known.calls:
            return self._called(func, known.name, args, kwargs)
        return self._run(known, args, kwargs)

    def _function(self, func: Any) -> "_Function":
        self.functions[id(func)] = _Function(self.torch, func)
        return self.functions[id(func)]

    def _of_host(self, args: Any, kwargs: Any) -> bool:
        """Whether an operator of the host runs on real tensors (batches, counters, meshes)."""
        device = self.torch.device(kwargs.get("device") or "cpu").type
        sizes = args[0] if args and isinstance(args[0], list | tuple) else ()
        small = not all(isinstance(n, int) for n in sizes) or prod(sizes) < _LARGE
        return device != "cuda" and (device == "meta" or small)

    def _value(self, tensor: Any) -> Any:
        """Return the result of `.item()`; the host waits for a value on the device."""
        if tensor.device.type == "cuda":
            self.streams.sync()
        content = self.contents.of(tensor)
        if content is not None:
            with self.unfaked():
                return content.item()
        return self.values.of(tensor.dtype)

    def _run(self, known: "_Function", args: Any, kwargs: Any) -> Any:
        self.log.seen += 1
        ran = self.contents.run(known.func, known.name, args, kwargs)
        ins, outs = self._there(ran.given), self._there(ran.made)
        line = self._line()
        self._track(outs, line)
        if (ins or outs) and known.free:
            self.log.views += known.view
        elif ins or outs:
            aside = self._aside(ran.given, outs, known.product, line)
            self._kernel(
                lambda: self._number(known, ran.asked, args, kwargs, ins, outs), ins, line, aside
            )
        if (ins and ran.looked) or self._waits(known.name, args, kwargs, ran):
            self.streams.sync()
        return ran.out

    def _waits(self, name: str, args: Any, kwargs: Any, ran: Any) -> bool:
        """Whether a copy between host and device holds up the host, as all copies do that are not
        `non_blocking` (aten/src/ATen/native/cuda/Copy.cu, `memcpy_and_sync`)."""
        if name not in ("_to_copy", "copy_"):
            return False
        asked = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
        copied = (*ran.given, *ran.made)
        return not asked and len({tensor.device.type for tensor in copied} & {"cpu", "cuda"}) > 1

    def _aside(self, given: list[Any], made: list[Any], product: bool, line: int) -> bool:
        """Whether no gradient flows through an operator. Products are counted."""
        phase = self.log.phase
        off = self.gradients.line if phase == "forward" else ""
        aside = phase == "forward" and (bool(off) or self.gradients.none_in(given, made))
        if product:
            self.log.products[f"{ASIDE} at {off}" if off else phase] += 1
        if product and phase == "forward" and not aside and "call" not in self.log.places:
            self.log.note_place("call", self.line.calling(self.torch.nn.Module._call_impl.__code__))
        if aside and self.log.began:
            self.log.asides[len(self.log.events)] = off or self.log.line(line)
        return aside

    def _track(self, outs: list[Any], line: int) -> None:
        stream, again = self.streams.current, self._again()
        for tensor in outs:
            self.log.track(tensor.untyped_storage(), stream, line, again=again)

    def _again(self) -> bool:
        """Whether a backward pass is recomputing: gradients are enabled, or a compiled graph runs a
        kernel of the forward pass."""
        if self.log.phase != "backward":
            return False
        fused = self.line.fused()
        return bool(self.torch.is_grad_enabled()) or (fused is not None and fused[1])

    def _line(self) -> int:
        """The script's present line; in a backward pass, the line whose operator is being
        differentiated.

        Autograd numbers a node when it makes the node, just before the node's operator runs.
        """
        if (fused := self.line.fused()) is not None:
            return fused[0]
        if self.log.phase == "backward" and not self.torch.is_grad_enabled():
            node = self.torch._C._current_autograd_node()
            if node is not None and node._sequence_nr() in self.forward_lines:
                return self.forward_lines[node._sequence_nr()]
            return self.line()
        line = self.line()
        made = self.torch.autograd._get_sequence_nr()
        if self.log.phase == "forward" and made > self.numbered:
            self.forward_lines |= dict.fromkeys(range(self.numbered, made), line)
            self.numbered = made
        return line

    def _there(self, tensors: list[Any]) -> list[Any]:
        """The tensors on the device."""
        return [tensor for tensor in tensors if tensor.device.type == "cuda"]

    def _on_device(self, tree: Any) -> list[Any]:
        return self._there(self.contents.tensors(tree))

    def empty(self, size: Any, stride: Any, dtype: Any) -> Any:
        """Return a tensor in new memory, which compiled code allocates past the dispatcher."""
        device = self.torch.device("cuda", self.torch.cuda.current_device())
        made = self.contents.results.fresh(size, stride, dtype, device)
        self._track([made], self._line())
        return made

    def reinterpreted(self, tensor: Any, size: Any, stride: Any, offset: int = 0) -> Any:
        """Return a view of a tensor, which compiled code makes past the dispatcher."""
        given = tensor, size, stride, tensor.storage_offset() + offset
        if type(tensor) is not self.fake:
            return self.torch.as_strided(*given)
        return self.contents.results.viewed(self.torch.as_strided, given, {})

    def launched(
        self, operator: Callable[[], Operator], reads: list[Any], writes: list[Any]
    ) -> None:
        """Record a kernel that is not an operator of torch."""
        for tensor in writes:
            self.contents.keep(tensor, None)
        line = self._line() if self.log.began else -1
        aside = self._aside(reads, writes, False, line)
        self._kernel(lambda: self.log.operators.number(operator()), reads, line, aside)

    def _number(
        self,
        known: "_Function",
        asked: Any,
        args: Any,
        kwargs: Any,
        ins: list[Any],
        outs: list[Any],
    ) -> int:
        """The number of an operator in the log; equal calls are described once."""
        key = (asked, known.rounded and tf32()) if asked else None
        number = self.numbers.get(key)
        if number is None:
            named = _named(known.func, args, kwargs)
            number = self.log.operators.number(described(known.func, named, ins, outs))
            if key:
                self.numbers[key] = number
        return number

    def _kernel(
        self, number: Callable[[], int], ins: list[Any], line: int, aside: bool = False
    ) -> None:
        results = self.log.results
        storages = [id(tensor.untyped_storage()) for tensor in ins]
        reads = {results.pop(key) for key in storages if key in results}
        if not self.log.began:  # no events are recorded before the step
            return
        self.log.add(
            "kernel",
            self.streams.current,
            again=self._again(),
            operator=number(),
            line=line,
            reads=tuple(sorted(reads)),
            graph=self.log.graph,
            views=self.log.views,
            aside=aside,
        )
        self.log.views = 0

    def _called(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Run a collective or a message to a peer, and record it if its tensors are on the
        device."""
        if name == "wait_tensor":  # torch's own kernel for shapes would copy the tensor
            mark = self.log.results.pop(id(args[0].untyped_storage()), 0)
            self.log.add("done", self.streams.current, mark=mark)
            return args[0]
        if name == "_wrap_tensor_autograd":  # torch's kernel for shapes would wrap another tensor
            return self.later(args[0])
        out, line = self._answered(func, name, args, kwargs), self._line()
        outs = self._on_device(out)
        self._track(outs, line)
        kind = call_of(name)
        results = outs or self._on_device((args, kwargs))
        if kind is None or not results:  # a collective among CPUs
            return out
        named = _named(func, args, kwargs)
        ranks = self._sent(func, kind, named, (args, out), results, line)
        if kind not in ("send", "recv"):
            place = ranks.index(self.torch.distributed.get_rank())
            sizes = {"size": len(ranks), "place": place}
            keep_results(self.torch, self.contents, kind, name, named, (args, out), **sizes)
        return out

    def _answered(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Return a collective's result. A call that sends several collectives as one has no kernel
        for shapes; the result of its first collective is returned."""
        if name not in _COALESCED:
            return func(*args, **kwargs)
        single, lists = _COALESCED[name]
        first = [args[0][:1]] if lists == 1 else [each[0] for each in args[:2]]
        rest = args[lists : lists + 1 + ("reduce" in name)]
        missing = [None] if lists == 1 else []  # sparse indices
        return getattr(self.torch.ops.c10d, single).default(*first, *rest, *missing)[-1]

    def _met_all(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Record a barrier: NCCL sums a number, and the host waits (ProcessGroupNCCL.cpp)."""
        out = func(*args, **kwargs)
        group = self._group(_named(func, args, kwargs))
        if self.torch.distributed.get_backend(group) == "gloo":
            return out
        work = self.work.unbox(out)
        work.seq_id = self._call("all_reduce", group, 4.0, self._line(), blocking=True)
        self.streams.sync()
        return out

    def _group(self, named: dict[str, Any]) -> Any:
        """The process group among the arguments of a collective."""
        group = named.get("process_group")
        return (
            self.group.unbox(group) if group is not None else self.named_group(named["group_name"])
        )

    def _call(self, kind: str, group: Any, size: float, line: int, **more: Any) -> int:
        """Record a collective or a message of a process group, and return its mark."""
        ranks = tuple(sorted(self.torch.distributed.get_process_group_ranks(group)))
        mark = next(self.log.serial)
        self.log.add(
            event_of(kind),
            self.streams.current,
            name=kind,
            group=self.log.groups.number(group_of(ranks, "sim capture")),
            bytes=size,
            mark=mark,
            line=line,
            **more,
        )
        return mark

    def _sent(
        self, func: Any, kind: str, named: dict[str, Any], ends: tuple[Any, Any],
        results: list[Any], line: int,
    ) -> list[int]:  # fmt: skip
        """Record a collective or a message, and return the ranks of its group."""
        args, out = ends
        group = self._group(named)
        ranks: list[int] = self.torch.distributed.get_process_group_ranks(group)
        c10d, pair = func.namespace == "c10d", kind in ("send", "recv")
        blocking = c10d and not pair and not named.get("async_op")
        peer = ranks[named["dst" if kind == "send" else "src"]] if pair else 0
        sides = (self._on_device(side) for side in (*args[:2], out))
        size = float(max(sum(tensor.nbytes for tensor in side) for side in sides))
        mark = self._call(kind, group, size, line, peer=peer, blocking=blocking)
        if c10d:
            self.work.unbox(out[-1] if isinstance(out, tuple | list) else out).seq_id = mark
        if not blocking and kind != "send":
            self.log.results |= {id(tensor.untyped_storage()): mark for tensor in results}
            self.log.written[mark] = [ref(tensor) for tensor in results]
        if pair:
            self._met(kind, peer, results[0])
        return ranks

    def _met(self, kind: str, peer: int, tensor: Any) -> None:
        """Meet the peer of a message. Whole numbers (shapes) really travel; floats do not."""
        self.exchange.meet(peer)
        if tensor.dtype.is_floating_point or not self.exchange.hub:
            return
        if kind == "send":
            content = self.contents.of(tensor)
            self.exchange.send(peer, None if content is None else content.numpy())
        else:
            content = self.exchange.receive(peer)
            with self.unfaked():
                real = None if content is None else self.torch.from_numpy(content)
            self.contents.keep(tensor, real)


def _named(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by name, with their defaults."""
    schema = func._schema.arguments
    usual: dict[str, Any] = {
        argument.name: argument.default_value for argument in schema if argument.has_default_value()
    }
    given = {argument.name: value for argument, value in zip(schema, args, strict=False)}
    return {**usual, **given, **kwargs}
