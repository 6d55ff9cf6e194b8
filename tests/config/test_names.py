"""Files of a user's folder that would not be read."""

import pytest

from ablate.config.command import read_command
from ablate.config.errors import PlanError

FLOOR = "# MaxNorm: x / max|x|.\n_target_: mine.MaxNorm\nfloor: 1.0e-5\n"
FILES = {
    "names.yaml": "is not read",
    "config.yaml": "is not read",
    "norm/max.yml": "is not read; name it max.yaml",
    "norms/max.yaml": "norms is no group of components; did you mean norm?",
    "norm/rms.yaml": "has the name of a variant or a study of ablate's",
    "norm/2d.yaml": "must have a name of letters",
    "norm/a+b.yaml": "must have a name of letters",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_whose_name_is_not_read_is_refused(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(FLOOR)
    with pytest.raises(PlanError, match=FILES[name]) as refused:
        read_command([], str(tmp_path))
    assert len(refused.value.problems) == 1


def test_a_misspelt_comment_is_refused(tmp_path):
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "max.yaml").write_text(FLOOR + "# nmae: MaxNorm\n")
    with pytest.raises(PlanError, match="did you mean # name:"):
        read_command([], str(tmp_path))
