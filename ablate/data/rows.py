"""Documents in a text column of a Hugging Face dataset, from the hub or from a folder of `save_to_disk`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.config.errors import one_line
from ablate.config.extra import extra
from ablate.config.files import parse_json
from ablate.data.documents import PIECE, ROWS, Document, Part, as_bytes
from ablate.formatting import instead

PATIENCE = 5.0  # seconds to wait for the hub


@dataclass(frozen=True)
class Rows:
    """The texts of a column, row by row."""

    name: str
    config: str | None
    split: str
    column: str

    @property
    def title(self) -> str:
        """See Files."""
        return "-".join([Path(self.name).name, *([self.config] if self.config else [])])

    @property
    def words(self) -> str:
        """See Files."""
        return f"data.name={self.name}"

    @cached_property
    def _rows(self) -> Any:
        if not self.name:
            raise ValueError("data.name is empty; write the name of a dataset, or the folder of a saved one")
        found = from_disk(self._folder, self.config) if self._folder else from_hub(self.name, self.config)
        if not isinstance(found, dict):
            found = {str(found.split) if found.split else "train": found}  # saved without a name
        if self.split not in found:
            raise ValueError(f"data.split={self.split} is not in {self.name}; {instead(self.split, found)}")
        rows = found[self.split]
        if self.column not in rows.column_names:
            there = instead(self.column, rows.column_names)
            raise ValueError(f"data.column={self.column} is not in {self.name}; {there}")
        return rows.select_columns([self.column])

    @property
    def _folder(self) -> Path | None:
        folder = Path(self.name).expanduser().absolute()
        return folder if self.name and folder.exists() else None

    def absolute(self) -> "Rows":
        """See Files."""
        return replace(self, name=str(self._folder or self.name))

    def files(self) -> list[Path]:
        """See Files."""
        return [Path(file["filename"]) for file in self._rows.cache_files]

    def listed(self) -> list[Path] | None:
        """The same, without loading a library; None if that is not possible."""
        if not self._folder:
            return None  # of the hub: a dataset of a name does not change in the library's cache
        split = self._folder / self.split
        folder = split if split.is_dir() else self._folder
        try:  # other .arrow files there are the library's cache
            state = parse_json((folder / "state.json").read_text(encoding="utf-8"))
            return sorted(folder / file["filename"] for file in state["_data_files"])
        except (OSError, ValueError, LookupError, TypeError):
            return self.files()  # says what is wrong with the folder

    def size(self) -> int:
        """See Files."""
        return int(self._rows.data.nbytes)

    def pieces(self) -> list[list[Part]]:
        """See Files."""
        count = len(self._rows)
        step = max(1, count * PIECE // max(1, self.size()))
        file = str((self.files() or [Path(self.name)])[0])
        return [[Part(file, start, min(start + step, count))] for start in range(0, count, step)]

    def documents(self, part: Part, cut: bool = True) -> Iterator[Document]:
        """See Files."""
        at = part.start
        for batch in self._rows.select(range(part.start, part.stop)).iter(ROWS):
            for text in batch[self.column]:
                encoded = as_bytes(text, self.column, self.name)
                if encoded.strip():
                    yield Document(f"{self.split}/{at}", encoded)
                at += 1


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
