"""Hydra inside a Flower app: the conf/ that lies beside this very package, whatever the working directory is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from omegaconf.errors import OmegaConfBaseException

from eiffel import config as cfg
from eiffel.worlds.post import Waits


def composed(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """conf/NAME.yaml with overrides, as plain dicts. Raises ConfigError in words for the user.

    An app that runs under Hydra itself keeps its own configuration.
    """
    cfg.register()
    kept = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(cfg.CONF), version_base=None):
            try:
                return cfg.plain(compose(name, overrides=list(overrides)))
            except (HydraException, OmegaConfBaseException) as problem:
                raise cfg.ConfigError(cfg.explain(problem, compose(name))) from problem
    finally:
        restore_gh_from_backup(kept)


def waits(section: dict[str, Any], cohort: int) -> Waits:
    """The budgets of waiting; `wanted` is the cohort unless it is set."""
    known = {f.name for f in fields(Waits)}
    for key in section:
        if key not in known:
            raise cfg.ConfigError(f"waits has no key {key!r}. {cfg.did_you_mean(key, known)}")
    try:
        return Waits(**{**section, "wanted": section.get("wanted") or cohort})
    except (TypeError, ValueError) as problem:
        raise cfg.ConfigError(f"waits: {problem}") from problem
