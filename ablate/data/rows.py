"""Documents in a text column of a Hugging Face dataset, from the hub or from a folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.config.errors import one_line
from ablate.config.extra import extra
from ablate.data.documents import ROWS, Document, as_bytes, refuse_one_split, stamp
from ablate.formatting import instead

PART = 10_000  # rows that one process reads at a time


@dataclass(frozen=True)
class Rows:
    """The texts of a column, row by row; of one split, or also of those for `validation` and `test`."""

    name: str
    config: str | None
    split: str
    column: str
    validation: str | None = None
    test: str | None = None

    @property
    def title(self) -> str:
        """See Files."""
        name = Path(self.name).name
        return f"{name}-{self.config}" if self.config else name

    @property
    def words(self) -> str:
        """See Files."""
        return f"data.name={self.name}"

    @cached_property
    def splits(self) -> dict[str, str]:
        """The dataset's name of each split that is used.  Raises ValueError."""
        if self.validation is None or self.test is None:
            refuse_one_split(self.validation, self.test)
            return {"train": self.split}
        if len({self.split, self.validation, self.test}) < 3:
            raise ValueError("data.split, data.validation and data.test name a split twice; write different ones")
        return {"train": self.split, "val": self.validation, "test": self.test}

    @cached_property
    def rows(self) -> dict[str, Any]:
        """The dataset of each split, of the column alone.  Raises ValueError."""
        loaded = self.load()
        if not isinstance(loaded, dict):
            loaded = {str(loaded.split or "train"): loaded}  # saved without a name
        rows = {}
        for split, name in self.splits.items():
            if name not in loaded:
                raise ValueError(f"data.name={self.name} has no split {name}; {instead(name, loaded)}")
            columns = loaded[name].column_names
            if self.column not in columns:
                raise ValueError(f"data.column={self.column} is not in {self.name}; {instead(self.column, columns)}")
            rows[split] = loaded[name].select_columns([self.column])
        return rows

    @property
    def folder(self) -> Path | None:
        """The folder of a dataset; None for one of the hub."""
        folder = Path(self.name).expanduser().absolute()
        return folder if self.name and folder.exists() else None

    def load(self) -> Any:
        """The dataset, or several by split: of `save_to_disk`, of Parquet files, or of the hub.  Raises
        ValueError."""
        datasets = extra("datasets", "data=hf")
        try:
            if self.folder is not None and self.config is None and any(self.folder.rglob("state.json")):
                return datasets.load_from_disk(str(self.folder))
            return datasets.load_dataset(str(self.folder or self.name), self.config)
        except Exception as error:  # of the library: a folder can hold anything, and the hub refuse it
            why = one_line(error)[:200]
        where = (
            "name a folder of save_to_disk or Parquet, or a dataset of the hub (and data.config) that can be reached"
        )
        raise ValueError(f"data.name={self.name} cannot be loaded ({why}); {where}")

    def recipe(self) -> dict[str, Any]:
        """What the text depends on: of one in a folder its files with their sizes and times, without loading a library;
        one of the hub does not change in the library's cache."""
        files: list[Path] = []
        if self.folder is not None:  # other .arrow files there are the library's cache
            for pattern in ("data-*.arrow", "state.json", "*.parquet"):
                files += sorted(self.folder.rglob(pattern))
        stamps = [[str(file), *stamp(file)] for file in files]
        return {"dataset": [self.name, self.config, self.splits, self.column], "files": stamps}

    def size(self) -> int:
        """See Files."""
        return sum(int(rows.data.nbytes) for rows in self.rows.values())

    def parts(self) -> list[tuple[str, Any]]:
        """The split and the rows of each part."""
        parts: list[tuple[str, Any]] = []
        for split, rows in self.rows.items():
            numbers = range(len(rows))
            parts += [(split, numbers[start : start + PART]) for start in numbers[::PART]]
        return parts

    def documents(self, split: str, rows: range, cut: bool = False) -> Iterator[Document]:
        """The texts of some rows that are not empty."""
        number = rows.start
        for batch in self.rows[split].select(rows).iter(ROWS):
            for value in batch[self.column]:
                text = as_bytes(value, self.column, self.name)
                if text.strip():
                    yield Document(f"{self.splits[split]}/{number}", text)
                number += 1
