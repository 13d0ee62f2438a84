from collections.abc import Mapping, Sequence

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
def models() -> list[tuple[str, str, int]]: ...
def clusters() -> list[tuple[str, str, int]]: ...
def import_recipe(
    files: Sequence[str],
    cluster: str,
    model: str,
    nodes: int,
    gpus: int,
    env: Mapping[str, str],
    leave_out: Sequence[str],
    dialect: str,
    set: Sequence[str],
) -> tuple[str, str]: ...
def traffic(
    collective: str,
    cluster: str,
    nodes: int,
    gpus: int,
    least: int,
    most: int,
    factor: int,
    network: str,
    set: Sequence[str],
) -> tuple[str, str]: ...
