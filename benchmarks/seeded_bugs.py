"""Seeds bugs, one at a time, in a copy of this checkout, and runs the tests that must catch each.

python benchmarks/seeded_bugs.py [WORD ...]     those whose description holds a word; without one all of them

A bug is a text of the code that stands in one file once, what replaces it, and the tests that must fail.  Prints a line
per bug and the share caught; exit code 1 where one survives, or no longer fits the code.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("ablate", "analysis", "conf", "docs", "experiments", "hydra_plugins", "tests", "README.md", "pyproject.toml")


class Bug(NamedTuple):
    """A mistake: what it is, the text that is replaced, by what, and the names of the tests that must see it."""

    what: str
    old: str
    new: str
    tests: str


BUGS = [
    # ---- the loop
    Bug(
        "clipping after the step",
        "norm = nn.utils.clip_grad_norm_(self.model.parameters(), optim.clip)\n            descend(self.optimiser)",
        "descend(self.optimiser)\n            norm = nn.utils.clip_grad_norm_(self.model.parameters(), optim.clip)",
        "test_five_steps_are_those_of_a_loop_written_by_hand",
    ),
    Bug(
        "learning rate of the next step",
        "lr = learning_rate(step, self.loop.steps,",
        "lr = learning_rate(min(step + 1, self.loop.steps - 1), self.loop.steps,",
        "test_five_steps_are_those_of_a_loop_written_by_hand",
    ),
    Bug(
        "learning rate of the first group only",
        "zip(self.optimiser.param_groups, self.shares, strict=True):",
        "zip(self.optimiser.param_groups[:1], self.shares, strict=False):",
        "test_five_steps_are_those_of_a_loop_written_by_hand",
    ),
    Bug(
        "each batch used twice",
        "self.task.batch(self.data_seed, step,",
        "self.task.batch(self.data_seed, step // 2,",
        "test_every_variant_sees_the_batches_of_its_seed_and_each_of_them_once",
    ),
    Bug(
        "batches depend on the variant",
        "self.task.batch(self.data_seed, step,",
        "self.task.batch(self.data_seed + len(list(self.model.parameters())) % 2, step,",
        "test_every_variant_sees_the_batches_of_its_seed_and_each_of_them_once",
    ),
    Bug(
        "the same dropout masks at every step",
        "rekey(self.model, self.data_seed, step)",
        "rekey(self.model, self.data_seed, 0)",
        "test_masks_are_others_at_every_step_site_and_seed_and_no_variants_own",
    ),
    Bug(
        "vectors decay, too",
        '<= 1], "weight_decay": 0.0}',
        '<= 1], "weight_decay": weight_decay}',
        "test_every_parameter_is_in_one_group_and_matrices_alone_decay",
    ),
    Bug(
        "the endpoint is of the validation split",
        'measure(model, task, "test", setting)\n    if running_norms',
        'measure(model, task, "val", setting)\n    if running_norms',
        "test_five_steps_are_those_of_a_loop_written_by_hand",
    ),
    Bug(
        "one high loss is a divergence",
        "progress.strikes >= 2 and lasting",
        "progress.strikes >= 1 and lasting",
        "test_a_training_loss_that_stays_above_its_first_value_diverges",
    ),
    Bug(
        "dropout keeps the size of what is left",
        "return x * keep / (1 - self.p)",
        "return x * keep",
        "test_rate_and_expectation",
    ),
    # ---- going on
    Bug(
        "the optimiser starts anew after a stop",
        'self.optimiser.load_state_dict(state["optimiser"])',
        "pass",
        "test_a_stopped_run_continues_to_the_same_numbers",
    ),
    Bug(
        "the average starts anew after a stop",
        'self.average.load_state_dict(state["average"])',
        "pass",
        "test_a_stopped_run_continues_to_the_same_numbers",
    ),
    Bug(
        "the first loss is forgotten by a checkpoint",
        'progress = Progress(**state["progress"])',
        'progress = Progress(**(state["progress"] | {"first_loss": math.nan}))',
        "test_the_first_training_loss_survives_a_checkpoint",
    ),
    Bug(
        "rows after the checkpoint stay",
        "self.file.truncate(offset)",
        "pass",
        "test_rows_after_the_checkpoint_are_cut_and_written_again",
    ),
    Bug(
        "changed code trains under the planned key",
        "if not run.path.endswith(run_key(config, seed, cell.task)):",
        "if False:",
        "test_numbers_of_changed_code_do_not_pass_for_the_planned",
    ),
    # ---- keys and reuse
    Bug(
        "optim.floor is in no key",
        'if kept["optim"].get("schedule") == "constant":',
        "if True:",
        "test_every_setting_of_the_frame_changes_the_key_or_says_why_not",
    ),
    *(
        Bug(
            f"train.{name} is in no key",
            'NO_NUMBERS = ("train.parallel",',
            f'NO_NUMBERS = ("train.{name}", "train.parallel",',
            "test_every_setting_of_the_frame_changes_the_key_or_says_why_not",
        )
        for name in ("precision", "average", "compile")
    ),
    Bug(
        "code is in no key",
        "code=used.content,",
        'code="",',
        "test_seeds_data_versions_and_code_change_the_key",
    ),
    Bug(
        "batches of other data count as the same",
        "_digest([fingerprint, *shared,",
        '_digest(["", *shared,',
        "test_batches_of_other_data_or_a_placebo_of_data_are_others",
    ),
    Bug(
        "reuse=any takes runs of other data",
        'ALIKE = ("versions", "data", "study")',
        'ALIKE = ("versions", "study")',
        "test_any_takes_no_run_of_other_versions_data_or_of_one_study_alone",
    ),
    # ---- statistics
    Bug(
        "the sign of a cell against the reference",
        "weights = {cell.id: 1.0, reference.id: -1.0}",
        "weights = {cell.id: -1.0, reference.id: 1.0}",
        "test_a_cell_against_the_reference_is_the_cell_minus_the_reference",
    ),
    Bug(
        "Bonferroni counts rows with a p only",
        "ALPHA / max(1, family.sum())",
        "ALPHA / max(1, (~np.isnan(p[family])).sum())",
        "test_the_family_counts_rows_that_have_no_p",
    ),
    Bug(
        "exploratory rows at the plain level",
        "ALPHA * found / max(1, (~family).sum())",
        "ALPHA",
        "test_exploratory_rows_have_a_false_coverage_rate_of_one_in_twenty",
    ),
    Bug(
        "uneven divergence by counts",
        '"uneven": a * len(other) != b * len(one)',
        '"uneven": a != b',
        "test_which_loss_of_runs_is_uneven_is_told_by_shares_not_by_counts",
    ),
    Bug(
        "unequal divergence leaves the verdict",
        "return bool(row.different or row.uneven or alarmed(row.p_normal))",
        "return bool(row.different or alarmed(row.p_normal))",
        "test_where_more_runs_diverged_the_verdict_is_withheld_and_ranks_say_the_rest",
    ),
    Bug(
        "the pooled SD weighted by n",
        'weights = rows["n"].to_numpy(float) - 1',
        'weights = rows["n"].to_numpy(float)',
        "test_a_pooled_spread_weighs_each_effect_by_its_degrees_of_freedom",
    ),
    Bug(
        "zero has a sign",
        '("" if float(text) == 0 else MINUS if value < 0 else "+")',
        '(MINUS if value < 0 else "+")',
        "test_what_is_shown_as_zero_has_no_sign",
    ),
    Bug(
        "one-sided intervals",
        "half = float(t_limit(alpha / 2, estimate.df))",
        "half = float(t_limit(alpha, estimate.df))",
        "test_main_effect_is_the_paired_t_over_seeds_of_the_average_over_the_other_factor",
    ),
    Bug(
        "n degrees of freedom",
        "sd / math.sqrt(n), n - 1)",
        "sd / math.sqrt(n), n)",
        "test_main_effect_is_the_paired_t_over_seeds_of_the_average_over_the_other_factor",
    ),
    Bug(
        "the SD of a population",
        "float(np.std(values, ddof=1)) if np.ptp(values) else 0.0",
        "float(np.std(values)) if np.ptp(values) else 0.0",
        "test_main_effect_is_the_paired_t_over_seeds_of_the_average_over_the_other_factor",
    ),
    Bug(
        "Holm counts one too few",
        "(m - np.arange(m)) * ordered",
        "(m - 1 - np.arange(m)) * ordered",
        "test_holm_by_hand",
    ),
    Bug(
        "pairs whatever the batches",
        "together = all(abs(sum(each.values())) < 1e-9 for each in found.values())",
        "together = True",
        "test_pairing_is_decided_by_the_batches_not_by_the_numbers",
    ),
    Bug(
        "verdicts from two pairs",
        "PAIRS = 3",
        "PAIRS = 2",
        "test_paired_differences_have_no_verdict_below_three_seeds",
    ),
    Bug(
        "unpaired verdicts below five seeds",
        "if not row.paired and row.n < SEEDS:",
        "if not row.paired and row.n < PAIRS:",
        "test_unpaired_comparisons_have_no_verdict_below_five_seeds",
    ),
    Bug(
        "equal from fewer than five seeds",
        "fallen.seen) or row.n < SEEDS:",
        "fallen.seen):",
        "test_verdicts_follow_the_interval_the_margin_and_the_seeds",
    ),
    Bug(
        "the bound on collapsing seeds from below",
        "special.betainccinv(count + 1, n - count, level)",
        "special.betaincinv(count + 1, n - count, level)",
        "test_a_share_that_so_few_seeds_rule_out",
    ),
    Bug(
        "no run has collapsed",
        "LOST = 0.25",
        "LOST = 25.0",
        "test_collapsed_seeds_count_in_the_bound_and_not_in_the_interval",
    ),
    Bug(
        "skew is never noticed",
        "return p_normal < LEVEL",
        "return p_normal < 0",
        "test_an_alarm_withholds_the_verdict_and_says_why",
    ),
    Bug(
        "seeds=auto stops on an alarm",
        ' | table["p_normal"].map(alarmed).astype(bool)',
        "",
        "test_seeds_auto_does_not_stop_on_an_alarm",
    ),
    Bug(
        "looks cost nothing",
        "[nominal(row.looks, level) for row, level in zip(rows, together, strict=True)]",
        "[level for row, level in zip(rows, together, strict=True)]",
        "test_intervals_and_p_allow_for_all_looks_and_agree",
    ),
    Bug(
        "every claim is registered",
        "registered=not seen, earlier=texts(old)",
        "registered=True, earlier=texts(old)",
        "test_a_claim_is_registered_while_no_seed_has_both_sides_scored",
    ),
    Bug(
        "McNemar without ties",
        "if abs(total) >= abs(sum(given))",
        "if abs(total) > abs(sum(given))",
        "test_single_runs_are_mcnemars_exact_test",
    ),
    Bug(
        "noise of a difference passes for a run's",
        "row.sd / math.sqrt(2) for row in found",
        "row.sd for row in found",
        "test_floors_are_the_spread_of_differences_from_the_plain_runs",
    ),
    # ---- attention by rules
    Bug(
        "a window one wider on a GPU",
        "(near >= 0) & (near < window)",
        "(near >= 0) & (near <= window)",
        "test_rules_are_the_explicit_bias_and_mask",
    ),
    # ---- metrics and data
    Bug(
        "padding counts in the loss",
        "float(scores.loss[scores.scored].mean())",
        "float(scores.loss.mean())",
        "test_only_scored_targets_count",
    ),
    Bug(
        "measured in training mode",
        "model.eval()\n        for norm in norms:",
        "for norm in norms:",
        "test_evaluation_is_of_the_evaluation_mode",
    ),
    Bug(
        "near-duplicates on both sides",
        "if count > SHARE * min(len(sets[a]), len(sets[b])):",
        "if count > SHARE * max(len(sets[a]), len(sets[b])):",
        "test_clusters_are_those_of_comparing_every_pair",
    ),
    Bug(
        "shingles of lines",
        "found = text.split()\n",
        "found = text.splitlines()\n",
        "test_shingles_are_of_twelve_words_whatever_stands_between_them",
    ),
    # ---- matching
    Bug(
        "a width that is nearly nearest",
        "CLOSE = 0.01",
        "CLOSE = 0.05",
        "test_any_cost_that_rises_with_the_width_is_searched_exactly",
    ),
    Bug(
        "embeddings count in matching",
        '"params": lambda cell: cell.budget.core,',
        '"params": lambda cell: cell.budget.params,',
        "test_position_tables_count_and_embeddings_do_not",
    ),
]


@functools.cache
def texts(folder: Path) -> dict[Path, str]:
    """The modules below a folder, as they were when it was first asked for."""
    return {file: file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.py"))}


def place_of(text: str, folder: Path) -> Path | None:
    """The one file of the code that holds a text, once; None where there is none such."""
    ours = texts(folder / "ablate") | texts(folder / "analysis")
    counts = {file: whole.count(text) for file, whole in ours.items()}
    found = [file for file, count in counts.items() if count]
    return found[0] if len(found) == 1 and counts[found[0]] == 1 else None


def nodes_of(names: str, folder: Path) -> list[str]:
    """The pytest nodes of tests by these names; nothing where one is not there."""
    found = {
        name: [f"{file}::{name}" for file, text in texts(folder / "tests").items() if f"\ndef {name}(" in text]
        for name in names.split()
    }
    return [node for nodes in found.values() for node in nodes] if all(found.values()) else []


def copied(folder: Path) -> None:
    """Copy what code and tests need of this checkout."""
    folder.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)


def passes(nodes: list[str], folder: Path) -> bool:
    """Whether tests pass in a copy of the checkout."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *nodes]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ended.returncode not in (0, 1):
        raise RuntimeError(ended.stdout + ended.stderr)
    return ended.returncode == 0


def tried(bug: Bug, folder: Path) -> str:
    """What becomes of a bug: caught, survived, or why it cannot be tried."""
    file, nodes = place_of(bug.old, folder), nodes_of(bug.tests, folder)
    if file is None or not nodes:
        return "not found: " + ("the code" if file is None else "the test")
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace(bug.old, bug.new), encoding="utf-8")
    try:
        return "survived" if passes(nodes, folder) else "caught"
    finally:
        file.write_text(whole, encoding="utf-8")


def main(words: list[str]) -> int:
    """Try every bug, or those that the words name; the exit code."""
    bugs = [bug for bug in BUGS if not words or any(word in bug.what for word in words)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "checkout"
        copied(folder)
        sound = sorted({node for bug in bugs for node in nodes_of(bug.tests, folder)})
        if not passes(sound, folder):
            print("the tests fail without any bug")
            return 1
        ends = []
        for bug in bugs:
            ends.append(tried(bug, folder))
            print(f"{ends[-1]:<9} {bug.what}", flush=True)
    caught = ends.count("caught")
    print(f"{caught} of {len(bugs)} caught")
    return int(caught < len(bugs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
