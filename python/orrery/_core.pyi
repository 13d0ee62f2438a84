from collections.abc import Sequence

version: str

def simulate(
    job: str,
    is_path: bool,
    set: Sequence[str],
    network: str | None,
    fold: bool,
    threads: int,
    seed: int | None,
    measured: str,
    calibration: str,
    timeline: str,
    timeline_ranks: str,
    heat_map: str,
) -> tuple[str, str]: ...

class Variants:
    def __init__(
        self,
        job: str,
        is_path: bool,
        set: Sequence[str],
        network: str | None,
        measured: str,
        calibration: str,
    ) -> None: ...

def sweep(
    variants: Variants,
    axes: Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]],
    scale: str,
    weak: bool,
    replay: bool,
    threads: int,
    shard: int,
    shards: int,
) -> tuple[str, str]: ...
def merge(texts: Sequence[str]) -> tuple[str, str]: ...
def values(text: str) -> tuple[str, list[str]]: ...
def plan(
    variants: Variants,
    vary: Sequence[str],
    objective: str,
    top: int,
    threads: int,
    seed: int,
    evaluations: int,
) -> tuple[str, str]: ...
