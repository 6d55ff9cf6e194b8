"""What commands compose: their cells' names, levels and settings, as `tests/recorded/commands.json` holds them.

Run as a script (as `make records` does), it composes every command of that file and writes the file anew.  To add a
command, add it there with `null`; to take one out, delete its lines.
"""

import json
import shlex
from pathlib import Path
from typing import Any

from ablate.config.command import read_command
from ablate.config.depth import folder_choice
from ablate.config.factors import cell_name
from ablate.config.schema import Config
from ablate.planning.plan import compose_study
from ablate.planning.study import PlannedStudy
from ablate.runs.key import renamed, settings
from ablate.runs.tables import class_name

FILE = Path(__file__).parents[1] / "recorded" / "commands.json"
# The keys of a whole study that are recorded; results_dir, dry_run and user are this machine's.
STUDY = (
    *("study", "tier", "seeds", "seeds_max", "confirm", "design", "ladder", "zip", "match", "margin"),
    *("step_equivalents", "reuse", "keep", "allow_duplicates", "track"),
)
TUNE = ("key", "values", "seeds", "extend", "rule")
ABSENT = "absent"  # stands for a section or a setting that is there in what a cell is compared with, not in the cell

Settings = dict[str, Any]


def composed(command: str) -> PlannedStudy:
    """The composed study of a command as a shell takes it, before widths or steps are matched."""
    words = [word for word in shlex.split(command) if word not in ("ablate", "-m")]
    return compose_study(*read_command(words, None))


def run_settings(config: Config) -> Settings:
    """The settings that determine a cell's runs, by section."""
    sections: Settings = as_json(settings(config))
    sections["seed"].pop("placebo", None)
    return sections


def study_settings(config: Config) -> Settings:
    """The settings of the whole study."""
    study = {key: getattr(config, key) for key in STUDY}
    for key in TUNE:
        study[f"tune.{key}"] = getattr(config.tune, key)
    return dict(as_json(renamed(study, class_name)))


def as_json(value: Any) -> Any:
    """A value as it is read back from JSON."""
    return json.loads(json.dumps(value))


def differences(reference: Settings, settings: Settings) -> Settings:
    """The settings that differ from those of the reference as JSON, in which 1, 1.0 and true are three values."""
    changed = {}
    for key in [*reference, *(key for key in settings if key not in reference)]:
        value = settings.get(key, ABSENT)
        is_same = key in reference and json.dumps(value, sort_keys=True) == json.dumps(reference[key], sort_keys=True)
        if not is_same:
            changed[key] = value
    return changed


def section_differences(reference: Settings, sections: Settings) -> Settings:
    """What differs from the reference: single settings of sections with the same class, other sections as a whole."""
    changed = {}
    for name, section in differences(reference, sections).items():
        usual = reference.get(name)
        if isinstance(section, dict) and isinstance(usual, dict) and section.get("_target_") == usual.get("_target_"):
            for key, value in differences(usual, section).items():
                changed[f"{name}.{key}"] = value
        else:
            changed[name] = section
    return changed


def reference_model() -> tuple[Settings, Settings]:
    """The settings of the reference model's runs and of its study."""
    config = composed("ablate").settings
    return run_settings(config), study_settings(config)


def command_record(command: str, model: Settings, study: Settings) -> Settings:
    """What a command composes: its study's settings that differ from the reference model's study, and for each cell
    its label, its folder's name, its levels, the cell that it is compared with, and its settings that differ from
    those of the first cell (those of the first cell: from the reference model)."""
    composition = composed(command)
    cells = []
    base = model
    for draft in composition.drafts:
        sections = run_settings(draft.config)
        record = {
            "label": draft.label,
            "name": cell_name(folder_choice(draft.config, draft.choices)),
            "levels": as_json(draft.levels),
            "compared with": composition.drafts[draft.reference].label,
            "settings": section_differences(base, sections),
        }
        if not cells:
            base = sections
        cells.append(record)
    return {"study": differences(study, study_settings(composition.settings)), "cells": cells}


def recorded() -> Settings:
    """The recorded file."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def written(record: Settings) -> str:
    """The file's text: a line for each section of the reference model and for each cell."""
    model = [f"  {line(name)}: {line(section)}" for name, section in record["model"].items()]
    commands = []
    for command, entry in record["commands"].items():
        cells = [f"    {line(cell)}" for cell in entry["cells"]]
        study = line(entry["study"])
        commands.append(f'  {line(command)}: {{"study": {study}, "cells": [\n{joined(cells)}\n  ]}}')
    parts = [
        '{"model": {',
        joined(model),
        f'}}, "study": {line(record["study"])}, "commands": {{',
        joined(commands),
        "}}\n",
    ]
    return "\n".join(parts)


def joined(lines: list[str]) -> str:
    return ",\n".join(lines)


def line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    """Record what the commands of the file compose now."""
    model, study = reference_model()
    commands = {command: command_record(command, model, study) for command in recorded()["commands"]}
    FILE.write_text(written({"model": model, "study": study, "commands": commands}), encoding="utf-8")
    cells = sum(len(entry["cells"]) for entry in commands.values())
    print(f"{len(commands)} commands with {cells} cells recorded")


if __name__ == "__main__":
    main()
