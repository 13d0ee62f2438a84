"""Where the program is: pass, module path and micro-batch, for each op.

Forward modules come from PyTorch's global module hooks. A backward op belongs to the module whose
forward made its autograd node: nodes are numbered in the order in which they are made, and the
numbers at each module border are kept. This asks that backward runs in the thread that ran forward
(`torch.autograd.set_multithreading_enabled(False)`, set by the session).
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizer_hooks

from orrery_trace.releases import DTensor
from orrery_trace.trace import Line, Writer

_accumulate = "AccumulateGrad"


class Where:
    """Follows modules, optimizers and backward passes of one program."""

    def __init__(self, device: str = "cuda") -> None:
        self.device = device
        self.opens_step: Callable[[], None] = lambda: None  # called before a root module's forward
        self.stack: list[tuple[nn.Module, int]] = []  # modules in forward now, with path numbers
        self.roots: list[weakref.ref[nn.Module]] = []
        self.optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self.stepped = False  # an optimizer has stepped since the last step began
        self.part: str | None = None  # pass given by an adapter
        self._outer: str | None = None  # the pass around an optimizer
        self.micro_batch: int | None = None  # given by an adapter
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._numbers: dict[str, int] = {}
        self._classes: dict[str, str] = {}
        self._written = 0
        self._borders: list[int] = [0]
        self._at: list[tuple[int, int | None]] = [(-1, None)]
        self._forwards: dict[int, int] = {}
        self._parameter_path: dict[int, str] = {}
        self._removers: list[Any] = []

    # --- hooks ------------------------------------------------------------------------------------

    def install(self) -> None:
        """Begins to follow."""
        self._removers = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
            optimizer_hooks.register_optimizer_step_pre_hook(self._before_optimizer),
            optimizer_hooks.register_optimizer_step_post_hook(self._after_optimizer),
        ]

    def remove(self) -> None:
        """Follows no longer."""
        for handle in self._removers:
            handle.remove()
        self._removers = []

    def _enter(self, module: nn.Module, _: Any) -> None:
        recomputing = torch._C._current_graph_task_id() != -1
        if not self.stack and not recomputing:
            self.opens_step()
            self._name_root(module)
            root = id(module)
            self._forwards[root] = self._forwards.get(root, -1) + 1
            if self.micro_batch is None:
                self._now = self._forwards[root]
        self.stack.append((module, self._path_number(module)))
        if not recomputing:
            self._border()

    def _leave(self, module: nn.Module, _: Any, __: Any) -> None:
        while self.stack:  # a module that raised may have left others behind
            if self.stack.pop()[0] is module:
                break
        if torch._C._current_graph_task_id() == -1:
            self._border()

    _now: int | None = None

    def _border(self) -> None:
        self._borders.append(torch.autograd._get_sequence_nr())
        path = self.stack[-1][1] if self.stack else -1
        mb = self.micro_batch if self.micro_batch is not None else self._now
        self._at.append((path, mb))

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not any(known() is optimizer for known in self.optimizers):
            self.optimizers.append(weakref.ref(optimizer))
        self._outer, self.part = self.part, "optimizer"

    def _after_optimizer(self, *_: Any) -> None:
        self.part = self._outer
        self.stepped = True

    # --- names ------------------------------------------------------------------------------------

    def _name_root(self, root: nn.Module) -> None:
        known = any(seen() is root for seen in self.roots)
        if known or root in self._paths:
            return
        self.roots.append(weakref.ref(root))
        for name, module in root.named_modules():
            self._paths[module] = name
        for name, parameter in root.named_parameters():
            self._parameter_path[id(parameter)] = name.rpartition(".")[0]

    def _path_number(self, module: nn.Module) -> int:
        path = self._paths.get(module)
        if path is None:  # added after the first forward, or called from outside any root
            above = self.stack[-1][0] if self.stack else None
            path = self._paths.get(above, "") if above is not None else ""
            path = f"{path}.{type(module).__name__}".lstrip(".")
            self._paths[module] = path
        return self._number(path, type(module).__name__)

    def _number(self, path: str, kind: str = "") -> int:
        if path not in self._numbers:
            self._numbers[path] = len(self._numbers)
            self._classes[path] = kind
        return self._numbers[path]

    def _write_modules(self, writer: Writer) -> None:
        paths = list(self._numbers)
        while self._written < len(paths):
            path = paths[self._written]
            line = {"t": "module", "id": self._written, "path": path}
            writer.line(line | ({"class": self._classes[path]} if self._classes[path] else {}))
            self._written += 1

    # --- questions --------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Micro-batches are counted from here."""
        self._forwards.clear()
        self._now = None
        self.stepped = False
        if not self.stack:
            self._borders, self._at = [0], [(-1, None)]

    def stamp(self, place: Line, writer: Writer) -> None:
        """Writes pass, module and micro-batch of now into `place`."""
        in_backward = torch._C._current_graph_task_id() != -1
        mb = self.micro_batch if self.micro_batch is not None else self._now
        module = self.stack[-1][1] if self.stack else -1
        if self.part == "optimizer":
            place["pass"] = "optimizer"
            module, mb = -1, None
        elif in_backward and self.stack:
            place["pass"] = "recompute"
            mb = self._of_node()[1] if self.micro_batch is None else mb
        elif in_backward:
            place["pass"] = self.part or "backward"
            module, found = self._of_node()
            mb = found if found is not None else mb
        elif self.stack or (torch.is_grad_enabled() and not self.stepped):
            place["pass"] = self.part or "forward"
        else:
            mb = None
        if module >= 0:
            place["module"] = module
            self._write_modules(writer)
        if mb is not None:
            place["mb"] = mb

    def _of_node(self) -> tuple[int, int | None]:
        """Module and micro-batch of the autograd node that runs now."""
        node = torch._C._current_autograd_node()
        if node is None:
            return -1, None
        name = node.name()
        if _accumulate in name:
            variable = getattr(node, "variable", None)
            path = self._parameter_path.get(id(variable))
            return (-1 if path is None else self._number(path)), None
        return self._at[bisect_right(self._borders, node._sequence_nr()) - 1]

    def storage_names(self) -> dict[int, tuple[str, str]]:
        """What each storage that outlives steps is: (kind, name), by the storage's address."""
        names: dict[int, tuple[str, str]] = {}

        def note(tensor: object, kind: str, name: str) -> None:
            if isinstance(tensor, DTensor):
                tensor = tensor._local_tensor
            if isinstance(tensor, torch.Tensor):
                names.setdefault(tensor.untyped_storage()._cdata, (kind, name))

        name_of: dict[int, str] = {}
        for reference in self.roots:
            root = reference()
            if root is None:
                continue
            for name, parameter in root.named_parameters():
                name_of[id(parameter)] = name
                note(parameter, "parameter", name)
                note(parameter.grad, "gradient", name)
            for name, kept in root.named_buffers():
                note(kept, "buffer", name)
        for known in self.optimizers:
            optimizer = known()
            for owner, state in (optimizer.state if optimizer is not None else {}).items():
                name = name_of.get(id(owner), "")
                note(owner, "parameter", name)
                note(getattr(owner, "grad", None), "gradient", name)
                for key, value in state.items() if isinstance(state, dict) else ():
                    note(value, "optimizer", f"{key} of {name}" if name else str(key))
        return names
