"""Configuration: which keys there are, and how a configuration becomes objects.

Hydra composes conf/sim.yaml with the groups strategies/, datasets/, fleet/, engine/ and report/. The numbers
of every selection rule, pace, weight rule and server optimizer are the fields of its dataclass: they are
registered here as groups (strategies/select, strategies/pace, strategies/weights, strategies/server), so that
the configuration of a run lists every number and a misspelt key is an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf

from eiffel.aggregate import SERVERS, WEIGHTS, Aggregate
from eiffel.budget import Budget
from eiffel.core.model import Local
from eiffel.method import Cohort, Method
from eiffel.pace import PACES
from eiffel.select import RULES

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
CONF = ROOT / "conf" if (ROOT / "conf" / "sim.yaml").exists() else PACKAGE / "conf"
"""Where the YAML lies: beside the package in a checkout and in a Flower bundle, inside it in a wheel."""

CHOICES: dict[str, Mapping[str, type[Any]]] = {
    "select": RULES,
    "pace": PACES,
    "weights": WEIGHTS,
    "server": SERVERS,
}
"""The tables of rules that strategy cards name."""


class ConfigError(ValueError):
    """A configuration that cannot be run, in words for the person who wrote it."""


class BesideConf(SearchPathPlugin):
    """Finds strategies/ and datasets/, which lie beside conf/ in a checkout and inside it in a wheel."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folder that holds conf/, when that is where the groups are."""
        if CONF.parent == ROOT:
            search_path.append("eiffel", f"file://{ROOT}")


@dataclass
class SimConfig:
    """The keys of conf/sim.yaml; groups are checked by their own schemas and by what is built from them."""

    datasets: Any = None
    strategies: Any = None
    fleet: Any = None
    engine: Any = None
    report: Any = None
    cohort: Any = None
    budget: Any = None
    seed: int = 0
    rounds: int | None = None
    score_every: int = 2
    save_every: int = 1
    target: float | None = None
    stop_at: float | None = None


def mirror(kind: type[Any], **fixed: str) -> Any:
    """A configuration dataclass with the fields of a frozen one, whose own would be read-only to OmegaConf.

    Literals become strings, checked when the rule is built; null stands for the field's default; fields that
    are not for setting are left out.
    """
    hints = get_type_hints(kind)
    columns: list[tuple[str, Any, Any]] = [(name, str, value) for name, value in fixed.items()]
    for f in fields(kind):
        if f.init:
            columns.append((f.name, _plain_type(hints[f.name]) | None, field(default_factory=_factory(f))))
    return make_dataclass(f"{kind.__name__}Config", columns)


def _plain_type(hint: Any) -> Any:
    if get_origin(hint) is Literal:
        return str
    return dict[str, Any] if get_origin(hint) is not None and issubclass(get_origin(hint), Mapping) else hint


def _factory(f: Field[Any]) -> Any:
    if f.default_factory is not MISSING:
        return f.default_factory
    return lambda: f.default


def register() -> None:
    """Register schemas and groups with Hydra; may be called more than once."""
    store = ConfigStore.instance()
    for choice, table in CHOICES.items():
        for name, rule in table.items():
            store.store(name=name, node=mirror(rule, rule=name), group=f"strategies/{choice}")
    for name, schema in {"sim": SimConfig, "cohort": mirror(Cohort), "budget": mirror(Budget)}.items():
        store.store(name=name, node=schema, group="_schema")
    Plugins.instance().register(BesideConf)


def build(choice: str, section: Mapping[str, Any]) -> Any:
    """The rule that a section of a strategy card describes, e.g. build("select", {"rule": "eiffel", "q": 1}).

    Raises ConfigError for an unknown rule, an unknown key, or a value the rule refuses.
    """
    table, numbers = CHOICES[choice], dict(section)
    name = numbers.pop("rule", None)
    if name not in table:
        raise ConfigError(f"strategies.{choice}.rule is {name!r}. {did_you_mean(str(name), table)}")
    return construct(table[name], numbers, f"strategies.{choice}")


def construct(kind: type[Any], numbers: Mapping[str, Any], where: str) -> Any:
    """`kind(**numbers)`, with every complaint naming the key and what is allowed."""
    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind) if f.init]
    for key, value in numbers.items():
        if key not in known:
            raise ConfigError(f"{where} has no key {key!r}. {did_you_mean(key, known)}")
        if get_origin(hints[key]) is Literal and value not in get_args(hints[key]):
            raise ConfigError(
                f"{where}.{key} is {value!r}; it must be one of {', '.join(get_args(hints[key]))}"
            )
    try:
        return kind(**{key: value for key, value in numbers.items() if value is not None})
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"{where}: {problem}") from problem


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known word, and lists them all."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, 1, 0.5) or [n for n in names if n.endswith("." + word)][:1]
    return (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {', '.join(names)}."


def build_method(config: Mapping[str, Any], rounds: int) -> Method:
    """The method that a composed configuration describes.

    local: the data set's numbers (lr, batch), overridden by the strategy's where it sets them.
    """
    card, data = config["strategies"], config["datasets"]
    local = data["local"] | {key: value for key, value in card["local"].items() if value is not None}
    aggregate = dict(card["aggregate"])
    for choice in ("weights", "server"):
        aggregate[choice] = build(choice, aggregate[choice])
    cohort = dict(config["cohort"])
    cohort["size"] = cohort["size"] or data["cohort"]
    select, pace = (_with_batch(card[choice], local["batch"]) for choice in ("select", "pace"))
    return Method(
        name=card["name"],
        select=build("select", select),
        pace=build("pace", pace),
        aggregate=construct(Aggregate, aggregate, "strategies.aggregate"),
        local=construct(Local, local, "strategies.local"),
        cohort=construct(Cohort, cohort, "cohort"),
        budget=construct(Budget, {**config["budget"], "rounds": rounds}, "budget"),
    )


def _with_batch(section: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """A rule that counts samples, and whose card leaves its `batch` null, counts with that of the devices."""
    return {**section, "batch": batch} if section.get("batch", 0) is None else dict(section)


def plain(config: DictConfig | ListConfig) -> dict[str, Any]:
    """A composed configuration as plain dicts, every reference resolved."""
    container = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def explain(problem: Exception, config: DictConfig | None, command: str = "sim") -> str:
    """What went wrong in a configuration of `eiffel COMMAND`, with the nearest right key or option."""
    text = str(problem).split("\n\tfull_key")[0].replace("\t", "  ")
    if match := re.search(r"Could not override '([^']+)'", text):
        words = _keys(OmegaConf.to_container(config)) if config is not None else []
        return f"there is no key {match[1]!r}. {_nearest_key(match[1], words, command)}"
    if match := re.search(r"Could not find '([^'/]+)/([^']+)'", text):
        return f"there is no {match[1]}={match[2]}. {did_you_mean(match[2], options(match[1], command))}"
    return text


def _nearest_key(key: str, words: list[str], command: str) -> str:
    near = difflib.get_close_matches(key, words, 1, 0.6)
    if not near:
        last = key.split(".")[-1]
        near = [w for w in words if difflib.SequenceMatcher(None, w.split(".")[-1], last).ratio() > 0.75][:1]
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return hint + f"`eiffel {command} --cfg job` prints all keys."


def _keys(tree: Any, at: str = "") -> list[str]:
    if not isinstance(tree, dict):
        return [at]
    return [
        key for name, value in tree.items() for key in _keys(value, f"{at}.{name}" if at else str(name))
    ] + ([at] if at else [])


def options(group: str, command: str | None = None) -> list[str]:
    """The cards of a group, by name; with a command, only the strategies that are for it."""
    folders = [CONF / group, ROOT / group] if CONF.parent == ROOT else [CONF / group]
    cards = [path for folder in folders if folder.is_dir() for path in folder.glob("[!_]*.yaml")]
    if command and group == "strategies":
        cards = [path for path in cards if _command_of(path) == command]
    return sorted({path.stem for path in cards})


def _command_of(card: Path) -> str:
    """The command that a strategy card is for: it says so by its kind."""
    return "cluster" if re.search(r"^kind: *cluster\b", card.read_text(encoding="utf-8"), re.M) else "sim"


def wrong_kind(name: str, command: str) -> str:
    """What to say to someone who gave `eiffel COMMAND` a strategy of the other kind."""
    what, other = {
        "sim": ("schedules the jobs of a cluster", "cluster"),
        "cluster": ("chooses the devices of a federation", "sim"),
    }[command]
    return (
        f"strategies={name} {what}: it is for `eiffel {other}`. "
        f"For `eiffel {command}` there are: {', '.join(options('strategies', command))}."
    )


def check_kind(words: Iterable[str], command: str) -> None:
    """Raise ConfigError if a word on the command line names a strategy of the other kind."""
    known, all_ = options("strategies", command), options("strategies")
    for word in words:
        key, _, value = word.partition("=")
        for name in value.split(",") if key == "strategies" else ():
            if name in all_ and name not in known:
                raise ConfigError(wrong_kind(name, command))
