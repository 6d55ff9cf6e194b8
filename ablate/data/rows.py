"""Documents in a text column of a Hugging Face dataset, from the hub or from a folder of `save_to_disk`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.config.errors import one_line
from ablate.config.extra import extra
from ablate.config.files import parse_json
from ablate.data.documents import ROWS, Document, as_bytes, stamp
from ablate.formatting import instead

PATIENCE = 5.0  # seconds to wait for the hub
PART = 64 << 20  # bytes of text that one process reads at a time


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
        if not self.name:
            raise ValueError("data.name is empty; write the name of a dataset, or the folder of a saved one")
        if self.validation is None and self.test is None:
            return {"train": self.split}
        if self.validation is None or self.test is None:
            raise ValueError("data.validation and data.test are splits of the dataset; write both, or neither")
        if len({self.split, self.validation, self.test}) < 3:
            raise ValueError("data.split, data.validation and data.test name a split twice; write different ones")
        return {"train": self.split, "val": self.validation, "test": self.test}

    @cached_property
    def rows(self) -> dict[str, Any]:
        """The dataset of each split, of the column alone.  Raises ValueError."""
        splits = self.splits
        loaded = from_disk(self.folder, self.config) if self.folder is not None else from_hub(self.name, self.config)
        if not isinstance(loaded, dict):
            loaded = {str(loaded.split or "train"): loaded}  # saved without a name
        columns = {}
        for split, name in splits.items():
            if name not in loaded:
                key = {"train": "split", "val": "validation", "test": "test"}[split]
                raise ValueError(f"data.{key}={name} is not in {self.name}; {instead(name, loaded)}")
            if self.column not in loaded[name].column_names:
                there = instead(self.column, loaded[name].column_names)
                raise ValueError(f"data.column={self.column} is not in {self.name}; {there}")
            columns[split] = loaded[name].select_columns([self.column])
        return columns

    @property
    def folder(self) -> Path | None:
        """The folder of a saved dataset; None for one of the hub."""
        folder = Path(self.name).expanduser().absolute()
        return folder if folder.exists() else None

    def recipe(self) -> dict[str, Any]:
        """What the text depends on: of a saved dataset its files with their sizes and times, without loading a library;
        one of the hub does not change in the library's cache."""
        splits = self.splits
        if self.folder is None:
            return {"name": self.name, "config": self.config, "splits": splits, "column": self.column}
        stamps = {}
        for split, name in splits.items():
            folder = self.folder / name if (self.folder / name).is_dir() else self.folder
            try:  # other .arrow files there are the library's cache
                state = parse_json((folder / "state.json").read_text(encoding="utf-8"))
                files = sorted(folder / file["filename"] for file in state["_data_files"])
                stamps[split] = [[str(file), *stamp(file)] for file in files]
            except (OSError, ValueError, LookupError, TypeError):
                break  # the library says what is wrong with the folder
        return {"files": stamps, "splits": splits, "column": self.column}

    def size(self) -> int:
        """See Files."""
        return sum(int(rows.data.nbytes) for rows in self.rows.values())

    def parts(self) -> list[tuple[str, Any]]:
        """The split and the rows of each part."""
        step = max(1, PART * sum(map(len, self.rows.values())) // max(1, self.size()))
        parts: list[tuple[str, Any]] = []
        for split, rows in self.rows.items():
            for start in range(0, len(rows), step):
                parts.append((split, range(start, min(start + step, len(rows)))))
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


def from_disk(folder: Path, config: str | None) -> Any:
    """Load a dataset, or several by split, written by `save_to_disk`."""
    if config is not None:
        raise ValueError(f"data.config={config} is for datasets of the hub, and {folder} is a folder; leave it null")
    datasets = extra("datasets", "data=hf")
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # a folder can hold anything
        raise ValueError(f"data.name={folder} holds no dataset of save_to_disk ({one_line(error)[:200]})") from None


def from_hub(name: str, config: str | None) -> Any:
    """Load a dataset from the local cache, or from the hub if it answers within `PATIENCE`."""
    if name.startswith(("/", ".", "~")):
        raise ValueError(f"data.name={name} does not exist; write a folder of save_to_disk, or a dataset of the hub")
    datasets = extra("datasets", "data=hf")
    try:
        with offline():
            return datasets.load_dataset(name, config)
    except Exception as error:  # not cached, or incomplete
        missing = one_line(error)[:200]
    if not answers():
        raise ValueError(
            f"data.name={name} is not on this machine, and the hub does not answer ({missing}); "
            "write the folder of a dataset saved with save_to_disk"
        )
    try:
        return datasets.load_dataset(name, config)
    except Exception as error:  # no such dataset, no such configuration, no permission, no space
        raise ValueError(f"data.name={name} data.config={config} cannot be loaded ({one_line(error)[:200]})") from None


@contextmanager
def offline() -> Iterator[None]:
    """Restrict the libraries to local files; otherwise they retry an unreachable hub for minutes."""
    modules = [extra("datasets.config", "data=hf"), extra("huggingface_hub.constants", "data=hf")]
    before = [module.HF_HUB_OFFLINE for module in modules]
    try:
        for module in modules:
            module.HF_HUB_OFFLINE = True
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value


def answers() -> bool:
    """Whether the hub can be reached, and offline mode is not set."""
    constants = extra("huggingface_hub.constants", "data=hf")
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        extra("huggingface_hub.utils", "data=hf").get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # the error depends on the HTTP client
        return False
    return True
