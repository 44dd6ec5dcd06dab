"""The page: whole, honest about what is missing, small, and working in a browser."""

import copy
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eiffel.report import figures, paper, report, table
from eiffel.report.svg import apart, tick_text, ticks
from eiffel.report.units import digits, fitting, times

VOID = {"meta", "link", "br", "input"}


class Nesting(HTMLParser):
    """Checks that every tag is closed in its turn, and collects ids, links and words."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.words = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [v for k, v in attrs if k == "id"]
        self.links += [v for k, v in attrs if k in ("href", "src")]

    def handle_startendtag(self, tag, attrs):
        self.ids += [v for k, v in attrs if k == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)


def read(path):
    page = Nesting()
    page.feed(path.read_text(encoding="utf-8"))
    assert page.open == []
    return page


@pytest.fixture(scope="module")
def page(sweep, tmp_path_factory):
    return report([sweep[0].parent], tmp_path_factory.mktemp("page") / "report.html")


def test_one_file_with_nothing_from_elsewhere(page):
    text = page.read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "@import" not in text
    assert "NaN" not in text
    assert len(text) < 200_000


def test_the_page_is_well_formed_and_links_to_its_runs(page, sweep):
    seen = read(page)
    assert len(seen.ids) == len(set(seen.ids))
    runs = [link for link in seen.links if link.endswith("/")]
    assert [(page.parent / link).resolve() for link in runs] == sweep


def test_every_chart_is_there_and_says_what_it_is(page):
    text = page.read_text()
    assert text.count("<svg") == 12
    assert len(re.findall(r"<svg[^>]*role=\"img\"[^>]*aria-labelledby=", text)) == 12
    words = " ".join(read(page).words)
    for said in (
        "50 devices, 3 seeds (0, 1, 2)",
        "98 % of the final accuracy of fedavg",
        "paired bootstrap",
        "+ EMA",
    ):
        assert said in words
    for kept in ("eiffel sim strategies=eiffel seed=2 rounds=60", "09f6" * 16, "2.13.0"):
        assert kept in words, "commands, hashes of the data, versions"


def test_names_are_escaped(make_run, tmp_path):
    run = make_run(tmp_path / "r", "fedavg", 0, rounds=8, strategy={"name": "<b>&x"}, command="<script>")
    text = report([run], tmp_path / "p.html").read_text()
    assert "<b>&x" not in text
    assert "&lt;b&gt;&amp;x" in text
    assert text.count("<script>") == 1


def test_missing_unfinished_and_damaged_runs_are_shown_as_such(sweep, tmp_path):
    good, torn, running = (shutil.copytree(sweep[i], tmp_path / str(i)) for i in (0, 1, 3))
    lines = (torn / "records.jsonl").read_bytes().splitlines(keepends=True)
    (torn / "records.jsonl").write_bytes(b"".join(lines[:9]) + b"rubbish\n" + b"".join(lines[9:]))
    (running / "summary.json").write_text('{"status": "running"}')
    page = report([good, torn, running, tmp_path / "gone"], tmp_path / "p.html")
    words = " ".join(read(page).words)
    assert "3 runs not whole or not counted" in words
    assert "records.jsonl, line 10: not a record" in words
    assert "unfinished: 60 rounds so far" in words
    assert "no such run folder" in words


def test_a_page_over_nothing_but_ruins_still_comes(tmp_path):
    page = report([tmp_path / "gone"], tmp_path / "p.html")
    assert "No run has results yet" in " ".join(read(page).words)
    with pytest.raises(ValueError, match="no run was named"):
        report([], tmp_path / "p.html")


def test_a_fleet_without_batteries_or_rows_of_devices(make_run, tmp_path):
    """What was not recorded is said not to be, in the place where it would have been."""
    run = make_run(tmp_path / "r", "fedavg", 0, rounds=8)
    shutil.rmtree(run / "clients.parquet")
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(re.sub(r'"battery_(min|mean)":[^,]+', r'"battery_\1":null', text))
    words = " ".join(read(report([run], tmp_path / "p.html")).words)
    assert "no device of this fleet runs on a battery" in words
    assert "kept no rows of single devices" in words
    assert "kept no accuracy of single devices" in words


def leaves(value, at=()):
    """Every path to a value inside nested mappings."""
    for key, inner in value.items():
        yield (*at, key)
        if isinstance(inner, dict):
            yield from leaves(inner, (*at, key))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_missing_or_nonsensical_figure_stops_the_page(small, data):
    """Take any few values, of the summary or of every record, and put null, text or nothing in their place."""
    home, summary, records = small
    changed, rows = copy.deepcopy(summary), copy.deepcopy(records)
    for part in ([changed], rows):
        paths = sorted(set(leaves(part[0])) | set(leaves(part[-1])))
        for path in data.draw(st.lists(st.sampled_from(paths), max_size=4)):
            new = data.draw(st.sampled_from([None, "text", [], 0, "gone"]))
            for value in part:
                put(value, path, new)
    (home / "summary.json").write_text(json.dumps(changed))
    (home / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read(report([home], home / "p.html"))
    table([home])


def put(value, path, new):
    for key in path[:-1]:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, dict) and new == "gone":
        value.pop(path[-1], None)
    elif isinstance(value, dict):
        value[path[-1]] = new


@pytest.fixture(scope="module")
def small(tmp_path_factory, make_run):
    home = make_run(tmp_path_factory.mktemp("small") / "r", "eiffel", 0, rounds=8)
    records = [json.loads(line) for line in (home / "records.jsonl").read_text().splitlines()]
    return home, json.loads((home / "summary.json").read_text()), records


def test_several_data_sets_get_a_section_each(make_run, tmp_path):
    runs = [
        make_run(tmp_path / "a", "fedavg", 0, rounds=8),
        make_run(tmp_path / "b", "fedavg", 0, rounds=8, data={"name": "har", "clients": 50}),
    ]
    seen = read(report(runs, tmp_path / "p.html"))
    assert len(seen.ids) == len(set(seen.ids))
    assert "fedavg on digits, har" in " ".join(seen.words)


def test_a_target_can_be_given(sweep, tmp_path):
    words = " ".join(read(report(sweep, tmp_path / "p.html", target=0.999)).words)
    assert "target 99.9 % accuracy, as given" in words
    assert "0 of 3" in words


def test_the_table_for_the_terminal(sweep):
    lines = table(sweep).splitlines()
    assert lines[0].startswith("digits: 50 devices, 3 seeds (0, 1, 2), target ")
    assert [line.split("  ")[0] for line in lines[4:8]] == ["fedavg", "", "eiffel", ""]
    assert len({len(line) for line in lines[2:8]}) == 1, "columns line up"
    assert table([sweep[0].parent / "gone"]).endswith("no such run folder")


def test_figures_for_a_paper(sweep, tmp_path, monkeypatch):
    """All nine are at hand; three are drawn here, for fonts take a second each to embed."""
    pytest.importorskip("matplotlib")
    every = paper._charts
    kept = ("accuracy-bytes", "devices", "energy")
    names = []

    def some(problem, aim):
        charts = every(problem, aim)
        names.extend(charts)
        return {name: charts[name] for name in kept}

    monkeypatch.setattr(paper, "_charts", some)
    files = figures([sweep[0], sweep[3]], tmp_path)
    assert len(names) == 9
    assert {f.name for f in files} == {f"{name}.{kind}" for name in kept for kind in ("svg", "pdf")}
    assert all(f.stat().st_size > 2000 for f in files)
    assert all(b"CreationDate" not in f.read_bytes() for f in files), "the same runs give the same files"
    with pytest.raises(ValueError, match="evaluation to draw"):
        figures([tmp_path], tmp_path)


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    return pytest.skip("no chromium or chrome to open the page in")


SCRIPT = """<script>
const svg = document.querySelector("svg[data-frame]"), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width * .5, clientY: box.top + 40}));
const said = document.getElementById("tip").textContent, shown = !document.getElementById("tip").hidden;
document.querySelector(".chip").click();
const off = document.querySelectorAll("svg .s0.off").length, on = document.querySelectorAll("svg .s0:not(.off)").length;
document.title = ["SEEN", shown, said, off > 0, on, document.documentElement.scrollWidth <= innerWidth].join("|");
</script>"""


def test_in_a_browser_it_reads_out_figures_and_hides_strategies(page, tmp_path):
    """The script of the page runs without an error; the pointer reads figures; a chip hides a strategy."""
    probe = tmp_path / "probe.html"
    probe.write_text(page.read_text().replace("</body>", f"{SCRIPT}</body>"))
    told = subprocess.run(
        [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=500,900", probe.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in told.stderr
    _, shown, said, off, on, fits = re.search(r"<title>(SEEN[^<]*)</title>", told.stdout)[1].split("|")
    assert shown == "true"
    assert re.fullmatch(r"traffic, up and down[\d.]+ MBeiffel[\d.]+ %fedavg[\d.]+ %", said)
    assert (off, on, fits) == ("true", "0", "true"), "all marks hidden; no sideways scrolling of the page"


def test_ticks_are_round():
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0.61, 0.93) == [0.7, 0.8, 0.9]
    assert tick_text([0, 0.25, 0.5]) == ["0.00", "0.25", "0.50"]


def test_labels_are_moved_apart_and_keep_their_order():
    """Wanted 10, 11, 50 with 12 between: the middle of 10 and 11 stays, so 4.5 and 16.5; 50 is left alone."""
    assert apart([11, 10, 50], 12, 0, 100) == pytest.approx([16.5, 4.5, 50])
    crowded = apart([5] * 20, 12, 0, 100)
    assert min(crowded) >= 0
    assert max(crowded) <= 100


def test_numbers_for_people():
    assert [digits(x) for x in (0, 0.01234, 4.888, 123.4, 12345)] == ["0", "0.0123", "4.89", "123", "12,300"]
    assert fitting("bytes", 4.9e6).text(4.888e6) == "4.89 MB"
    assert fitting("seconds", 5400).text(5400) == "90.0 min"
    assert [times(x) for x in (2.25, 0.5, 1.001, 1.071)] == [
        "2.2× less",
        "2.0× more",
        "the same",
        "1.07× less",
    ]
