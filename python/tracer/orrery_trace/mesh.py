"""How ranks are numbered: dimensions of a mesh, said by the user or read off a rank's groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

from orrery_trace.errors import TraceError

# Words in Megatron's names of groups, the longer ones first.
_ROLES = (
    ("EXPERT_TENSOR", "etp"), ("EXPERT_DATA", "edp"), ("EXPERT", "ep"), ("TENSOR", "tp"),
    ("CONTEXT", "cp"), ("PIPELINE", "pp"), ("DATA_PARALLEL", "dp"),
)  # fmt: skip


@dataclass
class Mesh:
    """Names and sizes of the dimensions by which ranks are numbered, outermost first."""

    names: list[str]
    sizes: list[int]

    @staticmethod
    def parse(text: str) -> Mesh:
        """Reads `pp=4,dp=8,tp=8`."""
        names, sizes = [], []
        for part in text.split(","):
            name, _, size = part.partition("=")
            if not name or not size.isdigit() or int(size) < 1 or name in names:
                raise TraceError(f"--mesh {text}: {part!r} is no NAME=SIZE with a new name")
            names.append(name)
            sizes.append(int(size))
        return Mesh(names, sizes)

    def __str__(self) -> str:
        return ",".join(f"{n}={s}" for n, s in zip(self.names, self.sizes, strict=True))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Where a rank lies along each dimension."""
        found = []
        for size in reversed(self.sizes):
            found.append(rank % size)
            rank //= size
        return tuple(reversed(found))

    def rank(self, place: Sequence[int]) -> int:
        """The rank at these coordinates."""
        rank = 0
        for size, at in zip(self.sizes, place, strict=True):
            rank = rank * size + at
        return rank

    def dimensions(
        self, ranks: list[int], of: int, distinct: Sequence[str] = ()
    ) -> list[str] | None:
        """The dimensions that a group of rank `of` spans; None if no other rank has its like.

        Along a dimension of `distinct` a group may hold some places only (first and last stage);
        along the others it must hold all, since ranks anywhere along them stand for each other.
        """
        here = self.coordinates(of)
        places = [self.coordinates(r) for r in ranks]
        spanned = [
            i for i in range(len(self.sizes)) if any(place[i] != here[i] for place in places)
        ]
        some = [i for i in spanned if self.names[i] in distinct]
        whole = prod(self.sizes[i] for i in spanned if i not in some)
        if len(set(ranks)) != whole * len({tuple(place[i] for i in some) for place in places}):
            return None
        return [self.names[i] for i in spanned]


def _strides(ranks: list[int]) -> list[tuple[int, int]] | None:
    """(stride, count) of the dimensions that a sorted group spans, innermost first, if any."""
    if len(ranks) == 1:
        return []
    stride = ranks[1] - ranks[0]
    count = 1
    while count < len(ranks) and ranks[count] - ranks[count - 1] == stride:
        count += 1
    if len(ranks) % count:
        return None
    outer = _strides(ranks[::count])
    offsets = [r - ranks[0] for r in ranks[:count]]
    whole = all(
        ranks[i + j] == ranks[i] + offset
        for i in range(0, len(ranks), count)
        for j, offset in enumerate(offsets)
    )
    return [(stride, count), *outer] if whole and outer is not None else None


def _role(description: str) -> str | None:
    if description.startswith("mesh_"):
        return description.removeprefix("mesh_")
    return next((role for word, role in _ROLES if word in description), None)


def infer(world_size: int, groups: list[tuple[str, list[int]]]) -> Mesh:
    """The coarsest mesh whose planes are these groups (description, ranks) of one rank.

    A group that divides nothing evenly (first and last stage, which share an embedding) is none of
    its planes. Raises where groups overlap as no mesh's do.
    """
    cuts = {1, world_size}
    named: list[tuple[str, list[tuple[int, int]]]] = []
    for description, ranks in groups:
        found = _strides(sorted(ranks))
        if found and all(world_size % (stride * count) == 0 for stride, count in found):
            cuts |= {cut for stride, count in found for cut in (stride, stride * count)}
            named.append((description, found))
    ordered = sorted(cuts)
    for inner, outer in pairwise(ordered):
        if outer % inner:
            raise TraceError(
                f"groups of the first rank traced lie {inner} and {outer} ranks apart, as in no "
                "mesh: say how ranks are numbered (--mesh)"
            )
    names, sizes = [], []
    for inner, outer in pairwise(ordered):
        roles = (_role(text) for text, found in named if found == [(inner, outer // inner)])
        name = next((role for role in roles if role and role not in names), f"stride{inner}")
        names.append(name)
        sizes.append(outer // inner)
    return Mesh(names[::-1], sizes[::-1]) if names else Mesh(["world"], [1])


def places(mesh: Mesh, names: Sequence[str]) -> list[int]:
    """The first rank at each place along these dimensions."""
    ranges = [
        range(size) if name in names else range(1)
        for name, size in zip(mesh.names, mesh.sizes, strict=True)
    ]
    return [mesh.rank(place) for place in product(*ranges)]
