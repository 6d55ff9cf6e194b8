"""What else differs between the two sides of an effect: settings that come with a variant but are not its factor."""

from ablate.config.choices import named_settings
from ablate.config.depth import is_patterned, spelled
from ablate.config.schema import BY_STEPS, LAYERS, NO_NUMBERS, PLACED
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.formatting import counted, flat, setting
from ablate.runs.naming import key_name
from ablate.runs.records import Cell, Manifest

SECTIONS = ("norm", "ffn", "residual", "position", "attention", "init", "model", "data", "train", "optim")
# A variant's rule decides its width, whose cost is shown elsewhere; the other settings do not change results.
NO_CONFOUNDS = {*NO_NUMBERS, "ffn.hidden", "train.device"}
CHOSEN_BY_MATCHING = {
    "params": {"ffn.mult", "ffn.multiple_of"},
    "flops": {"ffn.mult", "ffn.multiple_of"},
    BY_STEPS: {"train.steps", "optim.warmup"},
}
MOST_NAMED = 3  # settings that a line lists
Values = dict[str, set[str]]  # by key, the values that a side's cells have


def also_of_each(manifest: Manifest, effects: list[Contrast]) -> list[list[str]]:
    """What else differs between the sides of each contrast: see `also_differs`."""
    settings = {cell.id: settings_of(cell) for cell in manifest.cells}
    return [also_differs(manifest, contrast, settings) for contrast in effects]


def settings_of(cell: Cell) -> dict[str, str]:
    """Every setting of a cell by its dotted key, as text, with the arguments that no YAML sets."""
    config = {}
    sections = cell.config.as_json() if cell.config else {}
    for section, node in sections.items():
        if section in SECTIONS:
            config[section] = node | {LAYERS: spelled(node[LAYERS])} if is_patterned(node) else node
    return {key: setting(value) for key, value in {**cell.defaults, **flat(config)}.items()}


def also_differs(manifest: Manifest, contrast: Contrast, settings: dict[str, dict[str, str]]) -> list[str]:
    """The settings, other than its factors, in which the sides of a contrast differ: "bias true → false".

    Only settings that both sides have count.  Those of the factor's group come first, without the group's name, and not
    at all if its variants are one class with other arguments.  Interactions have none: their sides have all levels.
    """
    if contrast.kind == "interaction":
        return []
    cells = {cell.id: cell for cell in manifest.cells}
    reference = [cells[name] for name in contrast.side(-1)]
    level = [cells[name] for name in contrast.side(1)]
    changed = changed_factors(manifest, reference, level)
    keys_of_factors = {key for name in changed for key in name.split("+")}
    ignored = NO_CONFOUNDS | CHOSEN_BY_MATCHING.get(manifest.match, set()) | keys_of_factors
    for name in changed:
        for cell in [*reference, *level]:
            ignored |= named_settings(name, str(cell.levels.get(name)))  # they are part of the level's name
    if manifest.tuning:
        ignored.add(manifest.tuning.key)
    before = values_by_key(reference, settings)
    after = values_by_key(level, settings)
    differing = []
    for key in before.keys() & after.keys():
        if before[key] != after[key] and not is_ignored(key, ignored, keys_of_factors, before, after):
            differing.append(key)

    def order(key: str) -> tuple[bool, int, str]:
        group = key.partition(".")[0]
        return group not in keys_of_factors, SECTIONS.index(group), key

    return [in_words(manifest, key, before[key], after[key], keys_of_factors) for key in sorted(differing, key=order)]


def changed_factors(manifest: Manifest, reference: list[Cell], level: list[Cell]) -> list[str]:
    """The factors whose levels differ between two sides."""
    changed = []
    for name in manifest.factors:
        levels_before = {repr(cell.levels.get(name)) for cell in reference}
        levels_after = {repr(cell.levels.get(name)) for cell in level}
        if levels_before != levels_after:
            changed.append(name)
    return changed


def values_by_key(cells: list[Cell], settings: dict[str, dict[str, str]]) -> Values:
    """The values that some cells have of each setting."""
    values: Values = {}
    for cell in cells:
        for key, value in settings[cell.id].items():
            values.setdefault(key, set()).add(value)
    return values


def is_ignored(key: str, ignored: set[str], keys_of_factors: set[str], before: Values, after: Values) -> bool:
    """Whether a setting that differs is none besides the factor."""
    group, _, name = key.partition(".")
    plain_key = f"{group}.{name.rpartition('.')[2]}" if group in PLACED else key  # without a pattern's variant
    if plain_key in ignored or name == "_partial_":
        return True
    if name == LAYERS and "model.layers" in keys_of_factors:  # a pattern grows with the number of layers
        return True
    target = f"{group}._target_"
    same_class = before.get(target) == after.get(target)
    return group in keys_of_factors and (name == "_target_" or same_class)


def in_words(manifest: Manifest, key: str, before: set[str], after: set[str], keys_of_factors: set[str]) -> str:
    """A setting with both values: "bias true → false"."""
    group, _, name = key.removesuffix(f".{LAYERS}").partition(".")
    values = [sorted(before), sorted(after)]
    if name == "_target_":
        values = [[target.rpartition(".")[2] for target in targets] for targets in values]
    plain_key = group if name in ("_target_", "") else key
    title = key_name(manifest, plain_key)
    if group in keys_of_factors and not manifest.shown and title == key:
        title = name
    return f"{title} {', '.join(values[0])} → {', '.join(values[1])}"


def also_words(also: str) -> str:
    """The first settings of the column `also` of effects: "also differs in bias true → false"; "" if it is empty."""
    if not also:
        return ""
    settings = also.split("; ")
    words = f"also differs in {', '.join(settings[:MOST_NAMED])}"
    further = len(settings) - MOST_NAMED
    return f"{words} and {counted(further, 'more setting')}" if further > 0 else words


def effects_of_one_factor(manifest: Manifest) -> tuple[list[Contrast], list[list[str]]]:
    """The main effects and steps of a design, and what else differs in each."""
    effects = [contrast for contrast in contrasts(manifest) if contrast.kind in ("main", "step")]
    return effects, also_of_each(manifest, effects)


def also_lines(manifest: Manifest) -> list[str]:
    """A line for each contrast that changes more than its factor: "ffn: swiglu − mlp also differs in …"."""
    words = {}
    for contrast, also in zip(*effects_of_one_factor(manifest), strict=True):
        if also:
            words[contrast.label_in_any_stratum] = also_words("; ".join(also))
    return [f"{label} {also}" for label, also in words.items()]


def same_setting_line(manifest: Manifest) -> list[str]:
    """A line on what to write for all variants to have the reference's value of a setting that one changes; [] if no
    variant changes a setting that all have."""
    for contrast, also in zip(*effects_of_one_factor(manifest), strict=True):
        nodes = [vars(config).get(contrast.factor) for config in manifest.configs]
        for words in also:
            name, _, values = words.partition(" ")
            value = values.partition(" → ")[0]
            if all(isinstance(node, dict) and name in node for node in nodes):
                return [f"to give all the same {name} write {contrast.factor}.{name}={value}"]
    return []
