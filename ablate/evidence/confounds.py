"""What else differs between the two sides of a contrast, besides the factor in its name."""

from collections.abc import Iterable

from ablate.config.depth import is_patterned, named_settings, spelled
from ablate.config.schema import BY_STEPS, LAYERS, NO_NUMBERS, PLACED
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.formatting import counted, flat, setting
from ablate.results.naming import key_name
from ablate.results.records import Manifest

SECTIONS = ("norm", "ffn", "residual", "position", "attention", "init", "model", "data", "train", "optim")
# A variant's rule decides its width, whose cost is shown elsewhere; the other settings do not change results.
ASIDE = {*NO_NUMBERS, "ffn.hidden", "train.device"}
CHOSEN = {"params": {"ffn.mult", "ffn.multiple_of"}, "flops": {"ffn.mult", "ffn.multiple_of"}}
CHOSEN |= {how: {"train.steps", "optim.warmup"} for how in BY_STEPS}
NAMED = 3  # settings that a line lists


def also_of_each(manifest: Manifest, found: Iterable[Contrast]) -> list[list[str]]:
    """The settings, other than its factors, in which the sides of each contrast differ: "bias true → false".

    Only settings that both sides have count.  Those of the factor's group are listed without the group's name, and not
    at all if its variants are one class with other arguments.  Interactions have none: their sides have all levels.
    """
    settings = {}
    for cell in manifest.cells:
        config = {name: node for name, node in cell.config.as_json().items() if name in SECTIONS}
        patterned = {
            name: node | {LAYERS: spelled(node[LAYERS])} for name, node in config.items() if is_patterned(node)
        }
        filled_in = {**cell.defaults, **flat(config | patterned)}
        settings[cell.id] = {key: setting(value) for key, value in filled_in.items()}
    return [_also(manifest, contrast, settings) for contrast in found]


def _also(manifest: Manifest, contrast: Contrast, settings: dict[str, dict[str, str]]) -> list[str]:
    cells = {cell.id: cell for cell in manifest.cells}
    sides = [[cells[name] for name in contrast.side(sign)] for sign in (-1, 1)]
    levels = [{name: {repr(cell.levels.get(name)) for cell in side} for name in manifest.factors} for side in sides]
    changed = [name for name in manifest.factors if levels[0][name] != levels[1][name]]
    own = {key for name in changed for key in name.split("+")}
    given = {(name, str(cell.levels.get(name))) for name in changed for side in sides for cell in side}
    own = own.union(*(named_settings(*each) for each in given))  # they are part of the level's name
    values = [_values(settings[cell.id] for cell in side) for side in sides]
    aside = ASIDE | CHOSEN.get(manifest.match, set()) | own
    found = []
    for key in values[0].keys() & values[1].keys() if contrast.kind != "interaction" else ():
        group, _, name = key.partition(".")
        if f"{group}.{name.rpartition('.')[2] if group in PLACED else name}" in aside:  # without a pattern's variant
            continue
        follows = name == LAYERS and "model.layers" in own  # a pattern grows with the number of layers
        same_class = values[0].get(f"{group}._target_") == values[1].get(f"{group}._target_")
        of_variant = group in own and (name == "_target_" or same_class)
        if values[0][key] != values[1][key] and name != "_partial_" and not of_variant and not follows:
            found.append((group in own, key))
    order = {name: place for place, name in enumerate(SECTIONS)}
    found.sort(key=lambda each: (not each[0], order[each[1].partition(".")[0]], each[1]))
    return [_change(manifest, key, mine, *(side[key] for side in values)) for mine, key in found]


def _values(cells: Iterable[dict[str, str]]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for settings in cells:
        for key, value in settings.items():
            found.setdefault(key, set()).add(value)
    return {key: sorted(values) for key, values in found.items()}


def _change(manifest: Manifest, key: str, mine: bool, before: list[str], after: list[str]) -> str:
    group, _, name = key.removesuffix(f".{LAYERS}").partition(".")
    plain = [
        ", ".join(value.rpartition(".")[2] if name == "_target_" else value for value in side)
        for side in (before, after)
    ]
    called = key_name(manifest, group if name in ("_target_", "") else key)
    called = name if mine and not manifest.shown and called == key else called
    return f"{called} {plain[0]} → {plain[1]}"


def also_words(also: str) -> str:
    """The first settings of the column `also` of effects: "also changes bias true → false"; "" if it is empty."""
    found = also.split("; ") if also else []
    more = f" and {counted(len(found) - NAMED, 'more setting')}" * (len(found) > NAMED)
    return f"also changes {', '.join(found[:NAMED])}{more}" * bool(found)


def also_lines(manifest: Manifest) -> list[str]:
    """A line for each contrast that changes more than its factor: "ffn: swiglu − mlp also changes …"."""
    found = {}
    named = [contrast for contrast in contrasts(manifest) if contrast.kind in ("main", "step")]
    for contrast, others in zip(named, also_of_each(manifest, named), strict=True):
        if others:
            where = f" at {contrast.stratum}" * bool(contrast.stratum)
            found[contrast.label.removesuffix(where)] = also_words("; ".join(others))
    return [f"{label} {others}" for label, others in found.items()]
