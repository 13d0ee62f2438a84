"""The Python half of the no-device guard: what `torch.cuda` must answer without a GPU.

Every name replaced is listed in `REPLACED`, so that it can be said how many there are.
"""

from __future__ import annotations

import contextlib
import importlib
from abc import ABCMeta
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer
from torch.utils import _foreach_utils

from orrery_trace.substrate import guard

REPLACED: list[str] = []
CUDA = 1  # its number among PyTorch's types of devices


class Stream(torch.Stream):
    """`torch.cuda.Stream` backed by the guard: ids are handed out in order of creation."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        """A new stream, or with `stream_id` a handle on an existing one."""
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device="cuda:0", priority=priority)

    @property
    def cuda_stream(self) -> int:
        """The raw handle that extensions ask for; here it is the id."""
        return int(self.stream_id)


class Event(torch.Event):
    """`torch.cuda.Event` backed by the guard: always complete, its waits are logged."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, **_: Any) -> Event:
        """A new event; `blocking` only matters to a host that really waits."""
        return super().__new__(cls, device="cuda:0", enable_timing=enable_timing)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Records on `stream`, or on the current one."""
        super().record(stream if stream is not None else current_stream())

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Makes `stream`, or the current one, wait."""
        super().wait(stream if stream is not None else current_stream())

    def elapsed_time(self, end_event: torch.Event) -> float:
        """One millisecond: no time passes, and programs divide by it."""
        return 1.0


def current_stream(device: Any = None) -> Stream:
    """The calling thread's current stream."""
    return Stream(stream_id=guard.current_stream(), device_index=0, device_type=CUDA)


def default_stream(device: Any = None) -> Stream:
    """Stream 0."""
    return Stream(stream_id=0, device_index=0, device_type=CUDA)


def set_stream(stream: torch.Stream | None) -> None:
    """Switches the calling thread to `stream`."""
    if stream is not None:
        guard.set_stream(int(stream.stream_id))


@contextlib.contextmanager
def stream_context(stream: torch.Stream | None) -> Any:
    """`with torch.cuda.stream(s)`."""
    before = current_stream()
    set_stream(stream)
    try:
        yield stream
    finally:
        set_stream(before)


class device_context:  # noqa: N801 - stands in for torch.cuda.device
    """`with torch.cuda.device(i)`: there is one device, so nothing changes."""

    def __init__(self, device: Any = None) -> None:
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> device_context:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _properties(device: Any = None) -> SimpleNamespace:
    """What frameworks read of a device: enough to choose the kernels of an H100."""
    return SimpleNamespace(
        name="fake H100", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132
    )


def _replace(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)
    label = getattr(owner, "__name__", str(owner))
    REPLACED.append(f"{label}.{name}")


def _rng_state(device: Any = None) -> torch.Tensor:
    """A state that checkpointing may save and give back; no number is ever drawn from it."""
    return torch.zeros(16, dtype=torch.uint8, device="cpu")


class Generator:
    """`torch.cuda.default_generators[0]`: keeps what it is given, draws nothing."""

    def __init__(self) -> None:
        self.state = _rng_state()

    def get_state(self) -> torch.Tensor:
        """The state given last."""
        return self.state

    def set_state(self, state: torch.Tensor) -> None:
        """Takes a state."""
        self.state = state

    graphsafe_get_state = get_state
    graphsafe_set_state = set_state

    def clone_state(self) -> Generator:
        """Another of the same."""
        return Generator()

    def manual_seed(self, seed: int) -> Generator:
        """Ignores the seed."""
        return self

    def initial_seed(self) -> int:
        """Zero."""
        return 0


def install_names() -> list[str]:
    """Replaces the names in `torch.cuda`; returns what was replaced."""
    cuda = torch.cuda
    fixed: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
        "_lazy_init": None, "init": None, "set_device": None,
        "empty_cache": None, "memory_allocated": 0, "max_memory_allocated": 0,
        "memory_reserved": 0, "max_memory_reserved": 0, "reset_peak_memory_stats": None,
        "mem_get_info": (80 << 30, 80 << 30), "get_device_capability": (9, 0),
        "get_device_name": "fake H100", "set_rng_state": None, "manual_seed": None,
        "manual_seed_all": None, "is_current_stream_capturing": False, "ipc_collect": None,
        "is_bf16_supported": True,
    }  # fmt: skip
    for name, value in fixed.items():
        for module in (cuda, cuda.random, cuda.memory):  # which import some by value
            if hasattr(module, name):
                _replace(module, name, lambda *_, answer=value, **__: answer)
    for module in (cuda, cuda.random):
        _replace(module, "get_rng_state", _rng_state)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        _replace(cuda.nvtx, name, lambda *_, **__: 0)
    _replace(torch._C, "_cuda_getDevice", lambda: 0)
    _replace(cuda, "synchronize", lambda *_, **__: guard.sync_device())
    _replace(cuda, "memory_stats", lambda *_, **__: {})
    _replace(cuda, "get_device_properties", _properties)
    _replace(cuda, "default_generators", (Generator(),))
    _as_torch_inductor_knows_them()
    _replace(cuda, "Stream", Stream)
    _replace(cuda, "Event", Event)
    _replace(cuda, "current_stream", current_stream)
    _replace(cuda, "default_stream", default_stream)
    _replace(cuda, "set_stream", set_stream)
    _replace(cuda, "stream", stream_context)
    _replace(cuda, "device", device_context)
    # With is_available() true, FakeTensorMode would try to place constants on the device.
    _replace(FakeTensorMode, "avoid_device_init", property(lambda self: True))
    for name in ("init_gpu_context", "init_cuda_context"):  # which allocates, in CUDA builds
        if hasattr(fake_tensor, name):
            _replace(fake_tensor, name, lambda *_: None)
    _plain_parameters()
    _replace(torch.Tensor, "type", _type)
    _replace(torch.nn.Module, "_apply", _apply)
    _replace(torch.Tensor, "data", property(_plain_data.__get__, _set_data))
    # By these lists of types optimizers and gradient clipping choose their multi-tensor kernels.
    for known in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        if FakeTensor not in known:
            known.append(FakeTensor)
    return REPLACED


def _plain_parameters() -> None:
    """Before 2.5 a fake parameter passes for one of every subclass of Parameter, as lazy ones."""
    marked = torch.empty(0)
    marked._is_param = True  # type: ignore[attr-defined]
    if not isinstance(marked, torch.nn.parameter.UninitializedParameter):
        return

    def is_instance(cls: type, instance: Any) -> bool:
        if cls is torch.nn.Parameter and isinstance(instance, torch.Tensor):
            return cls in type(instance).__mro__ or getattr(instance, "_is_param", False)
        return cls in type(instance).__mro__

    _replace(type(torch.nn.Parameter), "__instancecheck__", is_instance)


def _as_torch_inductor_knows_them() -> None:
    """Before 2.6 streams and events are told by abstract classes, which are asked by name."""
    with contextlib.suppress(ImportError):
        bases = importlib.import_module("torch._streambase")
        for name, kind in (("_StreamBase", Stream), ("_EventBase", Event)):
            base = getattr(bases, name, None)
            if isinstance(base, ABCMeta):
                base.register(kind)


def _type(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.type()`, which leaves "cuda" out of a fake tensor's; frameworks compare the name."""
    answer = _plain_type(self, dtype, *args, **kwargs)
    if dtype is None and self.device.type == "cuda" and not answer.startswith("torch.cuda."):
        return answer.replace("torch.", "torch.cuda.", 1)
    return answer


_plain_type = torch.Tensor.type


def _set_data(self: torch.Tensor, value: torch.Tensor) -> None:
    """`parameter.data = tensor` (FSDP1's `device_id`), after which a fake one keeps its device."""
    _plain_data.__set__(self, value)
    if isinstance(self, FakeTensor) and isinstance(value, FakeTensor):
        self.fake_device = value.fake_device


_plain_data: Any = torch.Tensor.data


def _apply(self: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
    """`Module._apply` for fake parameters, which PyTorch cannot swap ("weakref associated").

    A parameter on which `fn` changes nothing is left alone; another is replaced by a new one, in
    every module that shares it (tied embeddings).
    """
    replaced: dict[int, torch.Tensor] = {}
    kept: list[torch.Tensor] = []  # so that no id is used twice
    for module in self.modules() if recurse else (self,):
        tables: tuple[Any, ...] = (module._parameters, module._buffers)
        for table in tables:
            for name, old in table.items():
                if old is None:
                    continue
                if id(old) in replaced:
                    table[name] = replaced[id(old)]
                    continue
                with torch.no_grad():
                    new = fn(old)
                if new is old:
                    continue
                if isinstance(old, torch.nn.Parameter) and not isinstance(new, torch.nn.Parameter):
                    new = torch.nn.Parameter(new, old.requires_grad)
                    for key, value in old.__dict__.items():  # marks that frameworks leave there
                        new.__dict__.setdefault(key, value)
                table[name] = replaced[id(old)] = new
                kept.append(old)
    return self
