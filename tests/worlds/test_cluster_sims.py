"""Results as data: a small file of cases, runs and figures, evaluated; and what is said about bad ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from eiffel.worlds.cluster_sims import evaluate, expand, make_case, value_of

ROOT = Path(__file__).resolve().parents[2]
SPEC: dict[str, Any] = yaml.safe_load("""
cases:
  few:
    for: {jobs: [2, 3]}
    cluster: {nodes: [{type: gpu, nodes: 1, devices: 1}]}
    trace: {format: synthetic, jobs: "${jobs}", gangs: {1: 1}, lengths: {kind: uniform, hours: [1, 1]}}
    settings: {restart_s: 0, slot_s: 3600}
runs:
  fifo: {policy: fifo}
  slow: {policy: fifo, settings: {restart_s: 1800}}
figures:
  ttd over the limit: {case: few, value: fifo.ttd / limit.lb_ttd, bound: "<= 1.0001", each: ">= 0.9999"}
  jobs: {case: few, value: fifo.ended, each: ">= 3", published: 3}
  restarts cost: {case: few, value: slow.ttd - fifo.ttd, bound: ">= 1"}
""")


def test_figures_by_hand(tmp_path: Path) -> None:
    """Jobs of 1 h on one GPU: 2 and 3 h, the limit. With restarts of 1/2 h each takes two slots: + 1.5 and 2.5 h."""
    said: list[str] = []
    limit, jobs, restarts = evaluate(SPEC, tmp_path, said.append)
    assert limit.measured == pytest.approx((1.0, 1.0))
    assert jobs.measured == (2, 3)
    assert (jobs.each, jobs.published) == (">= 3", "3")
    assert restarts.measured == pytest.approx((1.5, 2.5))
    assert restarts.mean == pytest.approx(2.0)
    assert len(said) == 4  # every (case, run) once


def test_expressions() -> None:
    runs = {"a": {"x": 6.0}, "b": {"y": 4.0}}
    assert value_of("1 - (a.x - 2) / (b.y * 2)", runs) == 0.5
    with pytest.raises(ValueError, match="no measure 'z'; there are x"):
        value_of("a.z", runs)
    with pytest.raises(ValueError, match="only numbers"):
        value_of("__import__('os')", runs)


def test_names_that_do_not_exist(tmp_path: Path) -> None:
    figure = {"case": "few", "value": "lifo.ttd"}
    with pytest.raises(ValueError, match="no run 'lifo'; there are fifo, slow"):
        evaluate({**SPEC, "figures": {"f": figure}}, tmp_path)
    with pytest.raises(ValueError, match="no case 'many'"):
        evaluate({**SPEC, "figures": {"f": {"case": "many", "value": "fifo.ttd"}}}, tmp_path)


def test_grids_keep_types() -> None:
    cases = list(expand({"for": {"a": [1, 2], "b": ["x"]}, "trace": {"seed": "${a}", "path": "d/${b}.csv"}}))
    assert [label for label, _ in cases] == ["a=1 b=x", "a=2 b=x"]
    assert cases[1][1]["trace"] == {"seed": 2, "path": "d/x.csv"}


@pytest.mark.parametrize("name", ["hadar_vs_gavel", "elas_vs_tiresias", "hadare_lab"])
def test_our_files_name_only_what_exists(name: str) -> None:
    spec = yaml.safe_load((ROOT / "sims" / f"{name}.yaml").read_text())
    dummy = dict.fromkeys(("ttd", "jct_mean", "queue_mean", "rho_mean", "cru", "lb_ttd", "lb_jct"), 1.0)
    for figure in spec["figures"].values():
        cases = [figure["case"]] if isinstance(figure["case"], str) else figure["case"]
        assert set(cases) <= set(spec["cases"])
        assert np.isfinite(value_of(figure["value"], {r: dummy for r in [*spec["runs"], "limit"]}))


def test_overstated_work_is_what_users_declare_not_what_is_done(tmp_path: Path) -> None:
    """All jobs end early: the work stays what the trace says, the declared work is 1 to 5 times that."""
    plain = dict(next(expand(SPEC["cases"]["few"]))[1])
    base, case = make_case(plain, tmp_path), make_case({**plain, "overstated": 1.0}, tmp_path)
    assert (case.trace.work == base.trace.work).all()
    ratio = case.declared / case.trace.work
    assert ((ratio > 1) & (ratio <= 5)).all()
    assert (base.declared == base.trace.work).all()
