"""Reproducible results as data: what a file of sims/ says, read and checked. Errors name file and key.

A file of kind `federated` has
    title, shows    what it is, and what it shows
    like            another file whose data, runs, seeds, rounds, ... stand where this one says nothing
    seeds, rounds   {short: ..., long: ...}; rounds null: the data card's own number
    data            name: {card, set, only, tuned}: what it is dealt from, Hydra overrides; tuned: another data set
                    like it, whose searched settings serve where it was not searched itself
    runs            name: {strategy, set, tuned, only, data}: a card and overrides; tuned: also those of
                    sims/tuned.yaml; data: the data sets it is run on (default: all)
    ours            the run that the others are compared with; a list: it and variants of it, which are no baselines
    target          {share: .98, of: best}: the accuracy that costs are counted to; of: a run, or the best of the others
    views           which tables are shown: fairness, communication, energy, batteries, time
    figures         name: {value, data, bound, each, expect, target, rounds, published, source, remark, missed}
                    `value` is an expression over runs and measures such as `fedavg.bytes / eiffel.bytes`;
                    `bound: ">= 1.3"` judges the figure of means, `each: ">= 50"` that of every seed;
                    `missed` says beforehand that it fails, and why: shown as such, and no surprise
    remarks         what to know before quoting the tables
    takes           {short: s, long: s} on two cores with nothing else to do: processor seconds of all runs, halved
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from eiffel.config import CONF, PACKAGE, ROOT, did_you_mean, options
from eiffel.reproduce.measured import MEASURES

SIMS = ROOT / "sims" if CONF.parent == ROOT else PACKAGE / "conf" / "sims"
"""Where the files lie: beside the package in a checkout, inside it in a wheel."""

FORMS = ("short", "long")
VIEWS = ("fairness", "communication", "energy", "batteries", "time")
BEST = "best"
"""In an expression and as a target: by each measure the best of the runs that are not ours."""


class SimsError(ValueError):
    """A file of sims/ that cannot be run, in words for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Data:
    """A data set as a sims file uses it. only: a form in which alone it is run. tuned: the name of another that is
    like it, whose searched settings serve where it was not searched itself.
    """

    name: str
    card: str
    set: Mapping[str, Any]
    only: str = ""
    tuned: str = ""


@dataclass(frozen=True, slots=True)
class Method:
    """A strategy as a sims file uses it. tuned: overrides of sims/tuned.yaml come before `set`."""

    name: str
    strategy: str
    set: Mapping[str, Any]
    tuned: bool = False
    only: str = ""
    on: tuple[str, ...] = ()

    def runs_on(self, data: str) -> bool:
        """Whether it is run on this data set."""
        return not self.on or data in self.on


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that is worked out from the runs on one data set, and judged where it has a bound.

    rounds: the first and last round that measures of single rounds (tau) look at; 0: the run's last.
    target: the run whose own accuracy costs are counted to, "" for the file's. expect: what was measured when
    the rule was designed, on other seeds and in another simulator. missed: why the bound is known to be missed.
    """

    name: str
    value: str
    data: str
    bound: str = ""
    each: str = ""
    expect: str = ""
    target: str = ""
    rounds: tuple[int, int] = (1, 0)
    published: str = ""
    source: str = ""
    remark: str = ""
    missed: str = ""


@dataclass(frozen=True, slots=True)
class Sim:
    """A file of kind `federated`, for one form. `rounds`: data set to a number or None (the card's)."""

    name: str
    title: str
    shows: str
    seeds: tuple[int, ...]
    rounds: Mapping[str, int | None]
    data: tuple[Data, ...]
    runs: tuple[Method, ...]
    ours: tuple[str, ...]
    share: float
    of: str
    views: tuple[str, ...]
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]
    takes: Mapping[str, float]
    chart: bool = True


@dataclass(frozen=True, slots=True)
class Cluster:
    """A file of kind `cluster`: worked out by `eiffel.worlds.cluster_sims`."""

    name: str
    title: str
    shows: str
    spec: Mapping[str, Any]
    remarks: tuple[str, ...]
    takes: Mapping[str, float]


KEYS = (
    "kind", "title", "shows", "like", "seeds", "rounds", "data", "runs", "ours", "target", "views", "figures",
    "remarks", "takes", "chart",
)  # fmt: skip


def names(folder: Path = SIMS) -> list[str]:
    """The files that can be run: not tuned.yaml, and none that begins with an underscore."""
    return sorted(p.stem for p in folder.glob("*.yaml") if p.stem != "tuned" and not p.stem.startswith("_"))


def read(name: str, form: str = "short", folder: Path = SIMS) -> Sim | Cluster:
    """The file sims/NAME.yaml in its short or long form. Raises SimsError naming file and key."""
    if not (folder / f"{name}.yaml").is_file():
        raise SimsError(f"there is no sims/{name}.yaml. {did_you_mean(name, names(folder))}")
    return parse(load(name, folder), name, form, folder)


def load(name: str, folder: Path = SIMS) -> dict[str, Any]:
    """The file's keys, with those of the file that it is `like` below them."""
    where = f"sims/{name}.yaml"
    try:
        content = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    except yaml.YAMLError as problem:
        raise SimsError(f"{where}: not YAML ({' '.join(str(problem).split())})") from problem
    except OSError as problem:
        raise SimsError(f"{where}: cannot be read ({problem.strerror})") from problem
    if not isinstance(content, dict):
        raise SimsError(f"{where}: holds no keys; begin with `title:`")
    below = content.pop("like", None)
    return (load(str(below), folder) if below else {}) | content


def parse(content: Mapping[str, Any], name: str, form: str, folder: Path = SIMS) -> Sim | Cluster:
    """A Sim or Cluster from a file's keys."""
    where = f"sims/{name}.yaml"
    if form not in FORMS:
        raise SimsError(f"the form is {form!r}; it must be one of {', '.join(FORMS)}")
    if content.get("kind", "federated") == "cluster":
        return _cluster(content, name, where)
    told = _told(content, where)
    _known(content, KEYS, where)
    data = tuple(_data(n, v, where) for n, v in _mapping(content, "data", where).items())
    runs = tuple(_method(n, v, where, data) for n, v in _mapping(content, "runs", where).items())
    kept = tuple(d for d in data if d.only in ("", form))
    going = tuple(r for r in runs if r.only in ("", form))
    figures = [_figure(n, v, where, runs, data) for n, v in (content.get("figures") or {}).items()]
    target = content.get("target") or {}
    _known(target, ("share", "of"), f"{where}: target")
    here = {d.name for d in kept}
    return Sim(
        name,
        seeds=tuple(int(s) for s in _of_form(content.get("seeds", [0]), form, f"{where}: seeds")),
        rounds=_rounds(content.get("rounds"), form, kept, where),
        data=kept,
        runs=going,
        ours=tuple(_run(name, runs, f"{where}: ours") for name in _listed(content.get("ours", runs[0].name))),
        share=float(target.get("share", 0.98)),
        of=_run(target.get("of", BEST), runs, f"{where}: target.of", BEST),
        views=tuple(_one_of(v, VIEWS, f"{where}: views") for v in content.get("views", ["fairness"])),
        figures=tuple(
            f for f in figures if f.data in here and _runs_of(f) <= {r.name for r in going} | {BEST}
        ),
        chart=bool(content.get("chart", True)),
        **told,
    )


def _cluster(content: Mapping[str, Any], name: str, where: str) -> Cluster:
    """A file whose cases, runs and figures the cluster world reads itself."""
    for key in ("title", "cases", "runs", "figures"):
        if not content.get(key):
            raise SimsError(f"{where}: {key} is missing")
    for figure, entry in content["figures"].items():
        _bounds(entry, f"{where}: figures.{figure}")
    remark = (" ".join(str(content["remark"]).split()),) if content.get("remark") else ()
    takes = {form: 60.0 * float(content["minutes"]) for form in FORMS if content.get("minutes")}
    return Cluster(name, str(content["title"]), str(content.get("paper", "")), content, remark, takes)


def _told(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What both kinds say to the reader."""
    for key in ("title", "shows"):
        if not isinstance(content.get(key), str):
            raise SimsError(f"{where}: {key} is missing; say in words what the file is and shows")
    takes = content.get("takes") or {}
    return {
        "title": content["title"],
        "shows": " ".join(content["shows"].split()),
        "remarks": tuple(" ".join(str(r).split()) for r in content.get("remarks") or ()),
        "takes": {form: float(takes[form]) for form in FORMS if takes.get(form) is not None},
    }


def _data(name: str, value: Any, where: str) -> Data:
    at = f"{where}: data.{name}"
    value = value or {}
    _known(value, ("card", "set", "only", "tuned"), at)
    card = _one_of(value.get("card", name), options("datasets"), f"{at}.card")
    return Data(name, card, _settings(value, at), _form(value, at), str(value.get("tuned") or ""))


def _method(name: str, value: Any, where: str, data: Sequence[Data]) -> Method:
    at = f"{where}: runs.{name}"
    value = value or {}
    if not re.fullmatch(r"[a-z_][a-z_0-9]*", name) or name == BEST:
        raise SimsError(f"{at}: a run's name is letters, digits and _, and not {BEST!r}: expressions use it")
    _known(value, ("strategy", "set", "tuned", "only", "data"), at)
    strategy = _one_of(value.get("strategy", name), options("strategies"), f"{at}.strategy")
    on = tuple(_one_of(d, [x.name for x in data], f"{at}.data") for d in value.get("data") or ())
    return Method(name, strategy, _settings(value, at), bool(value.get("tuned")), _form(value, at), on)


def _settings(value: Mapping[str, Any], at: str) -> Mapping[str, Any]:
    found = value.get("set") or {}
    if not isinstance(found, dict):
        raise SimsError(f"{at}.set must map Hydra keys to values, such as {{strategies.pace.steps: 50}}")
    return found


def _form(value: Mapping[str, Any], at: str) -> str:
    return _one_of(value["only"], FORMS, f"{at}.only") if value.get("only") else ""


def _figure(name: str, value: Any, where: str, runs: Sequence[Method], data: Sequence[Data]) -> Figure:
    at = f"{where}: figures.{name}"
    if not isinstance(value, dict):
        raise SimsError(f"{at} must be a mapping with `value` and `data`")
    _known(value, [f.name for f in fields(Figure) if f.name != "name"], at)
    for key in ("value", "data"):
        if key not in value:
            raise SimsError(f"{at}.{key} is missing")
    _bounds(value, at)
    _one_of(value["data"], [d.name for d in data], f"{at}.data")
    texts = {k: " ".join(str(v).split()) for k, v in value.items() if k != "rounds"}
    rounds = value.get("rounds") or (1, 0)
    if len(rounds) != 2:
        raise SimsError(f"{at}.rounds is {rounds!r}; it must be [first, last], last 0 for the end")
    figure = Figure(name, rounds=(int(rounds[0]), int(rounds[1])), **texts)
    for run in _runs_of(figure) - {BEST}:
        _run(run, [r for r in runs if r.runs_on(figure.data)], f"{at}.value on {figure.data}")
    for _, measure in terms(figure.value):
        _one_of(measure, list(MEASURES), f"{at}.value, measure")
    if figure.target:
        _run(figure.target, runs, f"{at}.target", BEST)
    return figure


def _bounds(value: Mapping[str, Any], at: str) -> None:
    """Refuse bounds that cannot be judged, and a miss without one."""
    for key in ("bound", "each"):
        if not re.fullmatch(r"([<>]= -?\d+(\.\d+)?)?", str(value.get(key, ""))):
            raise SimsError(f"{at}.{key} is {value[key]!r}; it must read '>= number' or '<= number'")
    if value.get("missed") and not (value.get("bound") or value.get("each")):
        raise SimsError(f"{at}.missed needs a bound that is missed")


def terms(expression: str) -> set[tuple[str, str]]:
    """The (run, measure) pairs of an expression."""
    return set(re.findall(r"\b([a-z_][a-z_0-9]*)\.([a-z_][a-z_0-9]*)", expression))


def _runs_of(figure: Figure) -> set[str]:
    return {run for run, _ in terms(figure.value)} | ({figure.target} if figure.target else set())


def _rounds(value: Any, form: str, data: Sequence[Any], where: str) -> dict[str, int | None]:
    """Rounds of each data set: a number for all, or a mapping with `other` for those not named."""
    chosen = _of_form(value, form, f"{where}: rounds")
    if isinstance(chosen, dict):
        _known(chosen, [d.name for d in data] + ["other"] + list(chosen), f"{where}: rounds")
        return {d.name: chosen.get(d.name, chosen.get("other")) for d in data}
    return {d.name: chosen for d in data}


def _of_form(value: Any, form: str, at: str) -> Any:
    """A value that may differ between the forms."""
    if isinstance(value, dict) and set(value) & set(FORMS):
        if form not in value:
            raise SimsError(f"{at} has no {form!r}; give it for {' and '.join(FORMS)}")
        return value[form]
    return value


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _mapping(content: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict) or not value:
        raise SimsError(f"{where}: {key} must name at least one")
    return value


def _run(name: str, runs: Sequence[Method], at: str, also: str = "") -> str:
    return _one_of(name, [r.name for r in runs] + ([also] if also else []), at)


def _one_of(value: Any, known: Iterable[str], at: str) -> str:
    if value not in list(known):
        raise SimsError(f"{at} is {value!r}. {did_you_mean(str(value), known)}")
    return str(value)


def _known(value: Any, keys: Iterable[str], at: str) -> None:
    if not isinstance(value, Mapping):
        raise SimsError(f"{at} must be a mapping; got {value!r}")
    for key in value:
        if key not in list(keys):
            raise SimsError(f"{at} has no key {key!r}. {did_you_mean(str(key), keys)}")
