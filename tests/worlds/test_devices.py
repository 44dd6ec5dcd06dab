"""Fleets from cards and files: what is drawn has the spread the card states, what is wrong is named."""

import json
from copy import deepcopy
from functools import cache, reduce
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from numpy.testing import assert_allclose
from omegaconf import OmegaConf

from eiffel.worlds.card import NULLABLE, NUMBERS
from eiffel.worlds.catalogue import classes
from eiffel.worlds.devices import ROUND_STEPS, build_fleet

CONF = Path(__file__).resolve().parents[2] / "conf"
CARDS = sorted(path.stem for path in (CONF / "fleet").glob("*.yaml"))
REFERENCE = 6_600_000


@cache
def composed(name):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose(overrides=[f"+fleet={name}"]).fleet)


def card(name="phones", **change):
    """A card, with dotted keys (written with __) changed."""
    made = deepcopy(composed(name))
    for key, value in change.items():
        *path, last = key.split("__")
        reduce(lambda part, step: part[step], path, made)[last] = value
    return made


def build(name="phones", size=20_000, params=REFERENCE, seed=0, **change):
    return build_fleet(card(name, **change), size, params, seed)


@pytest.mark.parametrize("name", CARDS)
def test_every_card_builds_and_says_where_its_figures_come_from(name):
    made = build(name, 200)
    assert made.name == name
    for column in (made.step_s, made.step_j, made.down_mbps, made.up_j_mb, made.capacity_j):
        assert column.dtype == np.float32
        assert (column > 0).all()
    assert (made.battery_j <= made.capacity_j).all()
    for one in card(name)["classes"].values():
        assert {"step_s", "watts", "radio", "battery", "share"} <= set(one["sources"])
        assert all(len(source) > 4 for source in one["sources"].values())


def test_phones_have_the_spread_of_the_card():
    """Median .588 s and log-spread .861; 1.8 J at the median; J per step grow as s per step to the 1.17."""
    made = build()
    assert_allclose(np.median(made.step_s), 0.588, rtol=0.03)
    assert_allclose(np.log(made.step_s).std(), 0.861, rtol=0.03)
    slope, height = np.polyfit(np.log(made.step_s / 0.588), np.log(made.step_j), 1)
    assert_allclose([slope, np.exp(height)], [1.17, 1.8], rtol=0.02)
    assert_allclose(np.median(made.down_mbps), 6.1, rtol=0.03)
    assert (made.down_mbps.min(), made.down_mbps.max()) == pytest.approx((0.3, 100))
    assert_allclose(made.down_j_mb * made.down_mbps, 10.0, rtol=1e-5)


def test_one_exchange_is_worth_118_steps_of_time_and_48_of_energy():
    """26.4 MB down and up at 6.1 Mbit/s: 69.2 s / .588 s = 118; at 10/6.1 J/MB: 86.6 J / 1.8 J = 48."""
    made = build("uniform", 3)
    seconds, joules = made.exchange()
    assert_allclose(seconds / made.step_s, 117.8, rtol=1e-3)
    assert_allclose(joules / made.step_j, 48.1, rtol=1e-3)
    assert np.unique(made.step_s).size == np.unique(made.down_mbps).size == 1


def test_a_model_half_the_size_costs_half_a_step_unless_timed_itself():
    whole, half = build(size=50), build(size=50, params=REFERENCE // 2)
    assert_allclose(half.step_s, whole.step_s / 2, rtol=1e-6)
    assert_allclose(half.step_j, whole.step_j / 2, rtol=1e-6)
    assert half.bytes_down == whole.bytes_down // 2
    own = build(size=50, params=REFERENCE // 2, reference_params=None)
    assert_allclose(own.step_s, whole.step_s)


def test_draws_are_the_seeds_and_each_figure_has_its_own_stream():
    one, same, other = build(seed=1), build(seed=1), build(seed=2)
    assert np.array_equal(one.step_s, same.step_s)
    assert not np.array_equal(one.step_s, other.step_s)
    fixed = build_fleet(card(seed=1), 20_000, REFERENCE, 2)
    assert np.array_equal(fixed.step_s, one.step_s)
    slower_link = build(seed=1, link__sigma=0.2)
    assert np.array_equal(slower_link.step_s, one.step_s)
    assert np.array_equal(slower_link.battery_j, one.battery_j)


def test_the_catalogue_is_drawn_by_share_and_its_classes_are_their_figures():
    """Shares within sampling error (20,000 draws), medians within 5 %; Raspberry Pis run on mains power."""
    made = build("mixed")
    share = np.bincount(made.kind, minlength=len(made.kinds)) / made.size
    pi = made.kinds.index("pi4")
    table = classes(card("mixed")["classes"], 6.1)
    assert_allclose(share, table.share, atol=0.012)
    for index in range(len(made.kinds)):
        mine = made.kind == index
        assert_allclose(np.median(made.step_s[mine]), table.step_s[index], rtol=0.05)
        assert_allclose(np.median(made.step_j[mine]), table.step_j[index], rtol=0.05)
    assert np.isinf(made.capacity_j[made.kind == pi]).all()
    assert np.isinf(made.battery_j[made.kind == pi]).all()


def test_derived_step_times_and_shares_follow_from_the_scores(shared_data):
    """seconds = .588 x (1546 / score)^b through the two timed phones; share = listed phones nearest by ratio."""
    listed = json.loads((shared_data / "devices/flash/raw_ai_benchmark_list.json").read_text())
    power = np.log(0.588 / 0.179) / np.log(3734 / 1546)
    seconds = np.array([0.588 * (1546 / float(phone["CPU_F_AI_Score"])) ** power for phone in listed])
    table = card("catalogue")["classes"]
    phones = [name for name, one in table.items() if one["share"]]
    for name in phones:
        source = table[name]["sources"]["step_s"]
        if source.startswith("derived"):
            score = float(source.split("score ")[1].split()[0])
            assert_allclose(table[name]["step_s"], 0.588 * (1546 / score) ** power, rtol=0.005)
    apart = np.abs(np.log(seconds[:, None]) - np.log([table[name]["step_s"] for name in phones]))
    counts = np.bincount(apart.argmin(axis=1), minlength=len(phones))
    assert counts.tolist() == [table[name]["share"] for name in phones]


def test_watts_and_radio_follow_from_the_power_profiles(shared_data):
    """Big cores busy x 3.85 V, and Wi-Fi watts x .8 for a megabyte at 10 Mbit/s."""
    profiles = json.loads((shared_data / "devices/power/power_profiles_summary.json").read_text())
    table = card("catalogue")["classes"]
    names = {"nexus6": "moto_shamu", "galaxy_s8": "samsung_dreamlte", "redmi_note8": "xiaomi_ginkgo",
             "pixel4": "google_coral_flame", "mi9t_pro": "xiaomi_raphael"}  # fmt: skip
    for name, profile in ((table[ours], profiles[theirs]) for ours, theirs in names.items()):
        groups = profile["clusters"]
        big = groups[1:] if len(groups) > 1 else [[4, *groups[0][1:]]]
        milliamps = sum(cores * each + extra for cores, _, each, extra in big)
        assert_allclose(name["watts"], milliamps * 3.85e-3, rtol=0.005)
        assert name["battery_mah"] == profile["mAh"]
        busy, volts = profile["wifi_tx"] or profile["wifi_active"], (profile["wifi_v"] or 3850) / 1000
        assert_allclose(name["up_j_mb"], busy * volts * 0.8e-3, rtol=0.02)


def test_batteries_by_class_by_joules_or_by_rounds():
    """4,000 mAh x 3.85 V x 3.6 = 55,440 J; or as given; or 150 rounds of 50 steps and an exchange."""
    assert_allclose(build(size=50).capacity_j, 55_440)
    assert_allclose(build(size=50, battery__capacity_j=500.0).capacity_j, 500)
    made = build("uniform", 50, battery__rounds=150.0)
    assert_allclose(made.capacity_j, 150 * (ROUND_STEPS * made.step_j + made.exchange()[1]), rtol=1e-5)
    drawn = build()
    assert_allclose([drawn.battery_j.min(), drawn.battery_j.max()], [0.2 * 55_440, 55_440], rtol=0.01)
    pis = build("pis", 50, battery__capacity_j=500.0)
    assert np.isinf(pis.capacity_j).all()


def test_a_million_devices_take_less_than_50_megabytes():
    made = build(size=1_000_000)
    columns = [getattr(made, name) for name in made.__slots__]
    distinct = {id(c): c.nbytes for c in columns if isinstance(c, np.ndarray)}
    assert sum(distinct.values()) < 36e6  # the world's own arrays add 17 MB to these


@pytest.mark.parametrize("key", sorted(set(NUMBERS) - {"size", "speed.exponent", "availability.plug_h"}))
def test_impossible_numbers_are_refused_by_key(key):
    for value in (-1.0, float("nan"), "much", None):
        if value is None and key in NULLABLE:
            continue
        with pytest.raises(ValueError, match=rf"fleet\.{key} is .* must be"):
            build_fleet(card(**{key.replace(".", "__"): value}), 3, REFERENCE, 0)


def test_missing_and_unknown_keys_and_choices_are_named():
    lacking = card()
    del lacking["battery"]["floor"]
    with pytest.raises(ValueError, match=r"fleet\.battery\.floor is missing"):
        build_fleet(lacking, 3, REFERENCE, 0)
    with pytest.raises(ValueError, match=r"fleet\.batery is not known"):
        build_fleet(card() | {"batery": 1}, 3, REFERENCE, 0)
    with pytest.raises(ValueError, match=r"kind is 'sometimes'; it must be one of always, nightly, fedscale"):
        build(size=3, availability__kind="sometimes")
    with pytest.raises(ValueError, match="the smaller number comes first"):
        build(size=3, battery__initial=[0.9, 0.1])
    with pytest.raises(ValueError, match=r"classes\.phone\.watts is 'lots'"):
        build(size=3, classes__phone__watts="lots")
    with pytest.raises(ValueError, match="every share is 0"):
        build(size=3, classes__phone__share=0)


FILE = """kind, step_s, step_j, down_mbps, up_mbps, down_j_mb, up_j_mb, capacity_j, battery_j
pixel, 0.25, 0.5, 40, 10, 0.5, 1.5, 1000, 250
pi, 0.5, 2, 80, 80, 0.25, 0.25, inf,
pixel, 0.25, 0.5, 40, 10, 0.5, 1.5, 1000,
"""


def test_a_fleet_file_is_taken_as_it_stands(tmp_path):
    """Five devices from three lines: the fourth and fifth are the first two again."""
    path = tmp_path / "mine.csv"
    path.write_text(FILE)
    made = build(size=5, file=str(path))
    assert made.kinds == ("pixel", "pi")
    assert made.kind.tolist() == [0, 1, 0, 0, 1]
    assert made.step_s.tolist() == [0.25, 0.5, 0.25, 0.25, 0.5]
    assert made.up_mbps.tolist() == [10, 80, 10, 10, 80]
    assert made.battery_j[[0, 1, 3]].tolist() == [250, np.inf, 250]
    assert 200 <= made.battery_j[2] <= 1000
    smaller = build(size=1, file=str(path), battery__capacity_j=100.0)
    assert smaller.battery_j.tolist() == [100.0]
    assert_allclose(made.exchange()[0][0], 26.4 * 8 / 40 + 26.4 * 8 / 10, rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.5, 2, 80", "0.5, much, 80", "line 3: step_j is 'much'"),
        ("0.5, 2, 80", "0.5, -2, 80", "line 3: step_j is '-2'"),
        ("0.5, 2, 80", "inf, 2, 80", "line 3: step_s is 'inf'"),
        ("1000, 250", "1000, 2500", "line 2: battery_j is '2500'; it must lie between 0 and capacity_j"),
        ("pi, 0.5, ", "pi, ", "line 3: has not as many fields"),
        ("step_j", "step_joules", "line 1: missing columns 'step_j'; unknown columns 'step_joules'"),
    ],
)
def test_a_wrong_fleet_file_is_refused_by_line_and_field(tmp_path, old, new, message):
    path = tmp_path / "mine.csv"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(ValueError, match=f"mine.csv, {message}"):
        build(size=3, file=str(path))


def test_an_absent_or_empty_fleet_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*absent\.csv"):
        build(size=3, file=str(tmp_path / "absent.csv"))
    (tmp_path / "empty.csv").write_text(FILE.splitlines()[0])
    with pytest.raises(ValueError, match=r"empty\.csv: no devices"):
        build(size=3, file=str(tmp_path / "empty.csv"))
