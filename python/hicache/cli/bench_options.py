"""Values of `hicache bench multiturn` that depend on one another.

For: `bench.py`.
Assumes: typer has checked each value by itself.
Refuses to know: torch.
On error: `typer.BadParameter`, which the command line shows with the option's name, exit 2.
"""

from __future__ import annotations

from hicache.cli.bench_plan import CONFIGURATIONS, Sizes, Workload, sizes
from hicache.cli.options import refused, tier_pages

#: The random model's shape, and what its width is a multiple of; positions that both models have.
LAYERS, HIDDEN, WIDTH = 6, 256, 64
KINDS = "FWS"
POSITIONS = 8192
MOST_CLIENTS, MOST_LAYERS, MOST_HIDDEN = 1024, 64, 4096


def configuration_names(text: str) -> list[str]:
    """Keys of `CONFIGURATIONS` from text such as "device,host"."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in CONFIGURATIONS]
    if unknown or not names or len(set(names)) < len(names):
        raise refused("--configurations", f"{text!r}: use {', '.join(CONFIGURATIONS)}, each once at most")
    return names


def tier_sizes(workload: Workload, names: list[str], device: str | None, host: str | None) -> Sizes:
    """Pages of the tiers from `--device` and `--host`, or what the workload outgrows."""
    longest, page_size = workload.longest_pages, workload.page_size
    tokens = workload.prompt_tokens(workload.rounds - 1) + workload.output
    if tokens > POSITIONS:
        turn = "--input" if workload.input >= workload.output else "--output"
        option = "--rounds" if workload.rounds > 1 else turn
        raise refused(option, f"a conversation of {tokens} tokens; a model has {POSITIONS} positions")
    if host is not None and names == ["device"]:
        raise refused("--host", "only together with the configuration 'host' or 'storage'")

    def pages(option: str, text: str | None) -> int | None:
        if text is None:
            return None
        given = tier_pages(option, text, page_size, none=False)
        # More than room for everything is never used, and might be more than the machine has.
        return workload.all_pages if given is None else min(given, workload.all_pages)

    found = sizes(workload, pages("--device", device), pages("--host", host))
    if found.device < longest:
        raise refused(
            "--device", f"{device} tokens have no room for a whole conversation: {longest * page_size}"
        )
    return found


def model_shape(
    random: bool, layers: int | None, hidden: int | None, kinds: str | None
) -> tuple[int, int, str]:
    """Layers, width, and a letter for each layer, of the random model."""
    for option, value in (("--layers", layers), ("--hidden", hidden), ("--kinds", kinds)):
        if value is not None and not random:
            raise refused(option, "only together with --model random")
    if hidden is not None and hidden % WIDTH:
        raise refused("--hidden", f"{hidden} is not a multiple of {WIDTH}")
    if kinds is not None and (not kinds or set(kinds) - set(KINDS)):
        raise refused("--kinds", f"{kinds!r}: use letters of {KINDS}")
    count = layers or LAYERS
    return count, hidden or HIDDEN, ((kinds or KINDS[0]) * count)[:count]
