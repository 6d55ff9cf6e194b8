"""The typed frame as Hydra composes it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ablate.config.schema import OWNED, Config

if TYPE_CHECKING:
    from omegaconf import DictConfig


@functools.cache
def register() -> None:
    """Put the frame into Hydra's store, where `conf/config.yaml` takes it from."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="schema", node=writable(Config))


@functools.cache
def blank() -> DictConfig:
    """The frame before anything is set, to be copied: to make it takes five times as long."""
    return writable(Config)


def writable(frame: Any) -> DictConfig:
    """A frame as OmegaConf composes it: what is frozen in Python is not while it is put together."""
    from omegaconf import DictConfig, OmegaConf

    node: DictConfig = OmegaConf.structured(frame)
    for part in (node, *(node._get_node(key) for key in node)):
        if isinstance(part, DictConfig):
            OmegaConf.set_readonly(part, None)
    for name in OWNED if frame is Config else ():
        OmegaConf.set_struct(node[name], False)  # variants may add their own
    return node
