"""A norm is added by the steps of CONTRIBUTING.md and nothing else, in a copy of the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLASS = '''

class MaxNorm(nn.Module):
    """x / max(max|x|, ε) · weight (Nobody 2026)."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = at_least("eps", eps, 0)
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x / x.abs().amax(-1, keepdim=True).clamp(min=self.eps) * self.weight
'''
YAML = """# MaxNorm: x / max|x| · g per token.
# name: MaxNorm
# cite: nobody2026max
_target_: ablate.model.norm.MaxNorm
_partial_: true
eps: 1.0e-5
"""
PAPER = """
@article{nobody2026max,
  author = {Nobody, A.},
  title = {Maximal Normalisation},
  year = {2026},
}
"""
FORMULA = '    "max": ({"eps": EPS}, lambda v, p: [a / max(map(abs, v)) for a in v]),\n'


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the checkout with a new norm, written as CONTRIBUTING.md says."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in ("ablate", "analysis", "benchmarks", "docs", "tests", "tools"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    with (copy / "ablate/model/norm.py").open("a", encoding="utf-8") as file:
        file.write(CLASS)
    with (copy / "ablate/conf/papers.bib").open("a", encoding="utf-8") as file:
        file.write(PAPER)
    (copy / "ablate/conf/norm/max.yaml").write_text(YAML, encoding="utf-8")
    return copy


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=checkout, env=environment, capture_output=True, text=True, encoding="utf-8"
    )


@pytest.mark.slow
def test_the_failing_test_names_the_formula_that_is_missing(checkout):
    ended = run(checkout, "-m", "pytest", "tests/model/test_norm.py", "-k", "every_variant_has_a_formula")
    assert ended.returncode == 1 and "ablate/conf/norm/max.yaml has no formula" in ended.stdout, ended.stdout


@pytest.mark.slow
def test_with_a_line_for_its_formula_all_tests_of_the_norm_pass(checkout):
    file = checkout / "tests/model/test_norm.py"
    start = "FORMULAS: dict[str, tuple[dict[str, float], Callable[[list[float], Given], list[float]]]] = {\n"
    text = file.read_text(encoding="utf-8")
    assert text.count(start) == 1
    file.write_text(text.replace(start, start + FORMULA), encoding="utf-8")
    ended = run(checkout, "-m", "pytest", "-n", "0", "tests/model", "-k", "norm and max")
    assert ended.returncode == 0 and "passed" in ended.stdout.splitlines()[-1], ended.stdout[-3000:]
