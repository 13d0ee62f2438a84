"""`torch.Generator(device="cuda")`, and states of generators that went over the network."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch"
REASON = "a generator of a device needs its library, and a fake tensor holds no state"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """A generator of the device is one of the CPU that answers to the device's name."""
    from torch._subclasses.fake_tensor import FakeTensor

    plain = module._C.Generator

    class AnyGenerator(type(plain)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, plain)

    class Generator(plain, metaclass=AnyGenerator):  # type: ignore[valid-type,misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            generator = super().__new__(cls, "cpu")
            generator._device = module.empty(0, device=device).device
            return generator

        @property
        def device(self) -> Any:
            return self._device

        def set_state(self, state: Any) -> Any:
            return self if isinstance(state, FakeTensor) else super().set_state(state)

    patches.replace(module, "Generator", Generator)
