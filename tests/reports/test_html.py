"""The page and its plots: what they show, that they need nothing else, and what a browser makes of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kvbench.analysis.points import MOST_PLACES, MOST_POINTS, points_of
from kvbench.cli.main import main
from kvbench.drawing.plots import Plot, standalone
from kvbench.experiments.readings import ExperimentView
from kvbench.reports.formats import html
from kvbench.reports.formats.format import RunReport
from kvbench.reports.origin import origin_of
from kvbench.reports.run_plots import run_plots
from kvbench.runs.records import RequestError, RequestRecord, Stall
from kvbench.runs.run_folder import Run
from kvbench.summary.summary import summarise
from tests.made import Answer, Made, cyclic

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NASTY = ['<script>alert("x")</script>', "a & b", "\"quoted\" 'twice'", "costs $5 or $6", 'id="#010203"', "文書.txt", "long" * 20]
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Reads a page strictly: what is opened is closed, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.seen if tag == name]


def draw(run: Run) -> tuple[Plot, ...]:
    return run_plots(summarise(run), ExperimentView(run))


def page_of(run: Run) -> str:
    return html.render(RunReport(summarise(run, per_document=True, per_repeat=True), ExperimentView(run)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Made(repeats=2).write(tmp_path_factory.mktemp("page") / "run", cyclic)


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    return page_of(run)


def stalled(record: RequestRecord) -> RequestRecord:
    if record.key.doc_id % 3:
        return record
    return replace(record, preemptions=1, stalls=[Stall(3, 80.0 + record.key.doc_id, 60.0 + record.key.doc_id, 0.0, 20.0, 0.0)])


def predicted(record: Any) -> Any:
    """Foreseen as it was measured: of ten documents, with times."""
    requests = []
    for doc in reversed(range(10)) if record.pass_name == "reverse" else range(10):
        answer = cyclic(record.arm, record.repeat, record.pass_index, 0, doc)
        device, host = answer.device or 0, answer.host or 0
        requests.append((device, host, 5025 - device - host))
    sums = [sum(column) for column in zip(*requests, strict=True)]
    prediction = {"profile": "engine", "exact": True, "device": sums[0], "host": sums[1], "computed": sums[2], "requests": requests}
    return replace(record, prediction=prediction | {"rates": None, "ttft_ms": [4 + tokens * 0.085 for _, _, tokens in requests]})


# What it shows.


def test_the_sentence_comes_before_every_table_and_plot(run: Run, page: str) -> None:
    sentence = summarise(run).sentences[0]
    assert page.index(sentence) < min(page.index("<table"), page.index("<svg"))


def test_the_tables_hold_the_cells_of_the_summary(run: Run, page: str) -> None:
    rows = Reader(page).rows
    assert rows[5][:3] == ["cpu", "repeat", "20"]
    assert rows[6][:2] == ["cpu", "reverse"]
    assert rows[6][-3:] == ["21,504", "27,776", "970"]
    assert rows[3][-3:] == ["21,504", "-", "28,746"]
    documents = [row for row in rows if row[:2] == ["none", "reverse"] and len(row) == 7 and row[2].isdigit() and row[4] == "1,408"]
    assert [row[2] for row in documents] == ["5"]
    assert [row[2] for row in rows if row[:2] == ["none", "sequential"] and len(row) == 9] == ["0", "1"]  # repeats


def test_every_section_is_there(run: Run, page: str) -> None:
    text, summary = Reader(page).text, summarise(run)
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert [heading.split(" (")[0] for heading in headings] == [
        "By pass", "Load", "Tail latency", "By source", "By repeat", "By document", "Environment", "Run it again", "This run does not show",
    ]  # fmt: skip
    for words in (
        *summary.notes,
        *summary.limits,
        "made",
        "kvbench run --config",
        str(run.path / "manifest.json"),
        "4,864 tokens in 3.2 ms",
    ):
        assert words in text
    assert text.index(summary.limits[-1]) > text.index("Run it again")


def test_a_run_that_is_not_to_be_trusted_says_so_before_its_tables(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        answer = cyclic(arm, repeat, index, position, doc)
        return replace(answer, error=RequestError("timeout", "no answer")) if (arm, index, doc) == ("cpu", 1, 0) else answer

    page = page_of(Made().write(tmp_path / "run", script, "invalid", ["made so"]))
    assert (
        page.index("Invalid measurement") < page.index("made so") < page.index("1 of 60 requests failed (timeout)") < page.index("<table")
    )


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    made = Made(docs=len(NASTY))
    manifest = made.manifest()
    manifest["workload"]["document_names"] = NASTY
    made.manifest = lambda: manifest  # type: ignore[method-assign]
    run = made.write(tmp_path / 'a <b> & "run"', cyclic)
    page = page_of(run)
    reader = Reader(page)
    assert reader.tags("script") == []
    assert {row[2] for row in reader.rows if row[:2] == ["none", "sequential"] and len(row) > 2} >= set(NASTY)
    assert str(run.path) in reader.text
    for plot in draw(run):
        ElementTree.fromstring(standalone(plot.element))
    assert ">costs $5 or $6</text>" in draw(run)[0].element
    assert '>id="#010203"</text>' in draw(run)[0].element


def test_an_arm_may_be_named_like_markup(tmp_path: Path) -> None:
    run = Made(arms={"none": None, "<i>&</i>": 51200}).write(tmp_path / "run", cyclic)
    assert Reader(page_of(run)).tags("i") == []
    for plot in draw(run):
        ElementTree.fromstring(standalone(plot.element))


def test_servers_and_the_recorded_command_are_quoted_for_a_shell(run: Run) -> None:
    server = {"vllm": {"command": ["python", "-m", "vllm", '--kv={"a": 1}'], "environment": {"X": "a b"}, "inherited": {"OMP": "1"}}}
    manifest = {**run.manifest, "command": ["kvbench", "run", "--documents", "my files"], "arms": [{"name": "cpu", "command": server}]}
    origin = origin_of(ExperimentView(replace(run, manifest=manifest)))
    assert origin.recorded == "kvbench run --documents 'my files'"
    assert origin.servers == (("cpu, vllm", """OMP=1 X='a b' python -m vllm '--kv={"a": 1}'"""),)
    assert json.loads(origin.config) == run.manifest["config"]


# That it needs nothing else.


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    reader = Reader(page)
    for _, attributes in reader.seen:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "data", "action", "srcset"):
                assert str(value).startswith("#")
    assert {tag for tag, _ in reader.seen} & {"script", "link", "iframe", "img", "object", "image"} == set()
    assert "@import" not in page
    assert set(re.findall(r"https?://[^\"'\s<)]+", page)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)]*)", page))


def test_ids_are_unique_and_every_reference_has_its_target(page: str) -> None:
    ids = [str(attributes["id"]) for _, attributes in Reader(page).seen if "id" in attributes]
    assert len(ids) == len(set(ids)) > 20
    references = re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", page)
    assert references
    assert set(references) <= set(ids)


def test_every_plot_is_named_and_described(page: str) -> None:
    reader = Reader(page)
    ids = {attributes["id"] for _, attributes in reader.seen if "id" in attributes}
    plots = reader.tags("svg")
    assert len(plots) == 4
    for attributes in plots:
        assert attributes["role"] == "img"
        assert set(str(attributes["aria-labelledby"]).split()) <= ids
    assert "cpu, host hit: median 20.9 ms of 32, " in reader.text


def test_the_same_run_gives_the_same_bytes(run: Run, page: str) -> None:
    assert page_of(run) == page


# Plots.


def test_a_plot_of_each_kind_where_there_is_data(tmp_path: Path) -> None:
    made = Made(edit=stalled, edit_pass=predicted)
    plots = draw(made.write(tmp_path / "run", cyclic))
    assert [plot.name for plot in plots] == ["ttft", "tokens", "load", "sources", "stalls", "timeline-none", "timeline-cpu", "prediction"]
    assert plots[4].description == "The longest of the 20 that are shown: 89.0 ms (none-r0-p0-9, after token 3)."
    assert plots[-1].title == "TTFT, predicted against measured"
    assert re.match(r"none: in the median measured ÷ predicted is 1\.0\d; cpu: ", plots[-1].description)
    assert len({plot.title for plot in plots}) == 8
    for plot in plots:
        assert f">{plot.title}</text>" in plot.element  # its own, not its neighbour's


def test_unknown_tokens_are_not_drawn_as_zero(tmp_path: Path) -> None:
    plots = draw(Made().write(tmp_path / "run", lambda *_: Answer(5.0, device=None, host=None)))
    assert [plot.name for plot in plots] == ["ttft", "load", "sources"]


def test_a_run_in_which_every_request_failed_has_a_page(tmp_path: Path) -> None:
    run = Made().write(tmp_path / "run", lambda *_: Answer(5.0, error=RequestError("refused", "no server")))
    assert "60 of 60 requests failed" in Reader(page_of(run)).text


def test_a_run_without_requests_has_a_page(tmp_path: Path) -> None:
    run = Made(stop_after=0).write(tmp_path / "run", cyclic, "interrupted", ["stopped by the user"])
    assert "interrupted after 0 of 60 requests: stopped by the user" in Reader(page_of(run)).text
    assert draw(run) == ()


def test_a_long_pass_is_drawn_by_the_medians_of_neighbours(tmp_path: Path) -> None:
    docs = 3 * MOST_PLACES - 1
    run = Made(docs=docs, passes=("sequential",), arms={"none": None}).write(tmp_path / "run", lambda *place: Answer(float(place[3])))
    points = points_of(ExperimentView(run))
    (found,) = points.passes
    assert (found.merged, len(found.ttft_ms), found.documents) == (3, MOST_PLACES, ())
    assert found.ttft_ms[0] == 1.0
    (source,) = points.sources
    assert (source.n, len(source.ttft_ms)) == (docs, MOST_POINTS)
    assert (source.ttft_ms[0], source.ttft_ms[-1]) == pytest.approx((0.0, docs - 1.0))


def test_a_document_is_drawn_by_the_median_of_its_repeats_without_failed_ones(tmp_path: Path) -> None:
    def script(arm: str, repeat: int, index: int, position: int, doc: int) -> Answer:
        return Answer((10.0, 20.0, 60.0, 500.0)[repeat])

    def broken(record: RequestRecord) -> RequestRecord:
        """The last repeat fails after its first token."""
        return replace(record, error=RequestError("closed", "in mid-stream")) if record.key.repeat == 3 else record

    points = points_of(ExperimentView(Made(repeats=4, docs=1, edit=broken).write(tmp_path / "run", script)))
    assert points.passes[0].ttft_ms.tolist() == pytest.approx([20.0])
    assert points.sources[0].n == 9


def test_text_and_lines_take_the_colour_around_them(run: Run) -> None:
    for plot in draw(run):
        assert "currentColor" in plot.element
        assert "#01020" not in plot.element  # matplotlib's name for it


# The command.


def test_the_command_writes_the_page_and_the_plots(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "page.html", tmp_path / "plots"
    assert main(["report", str(run.path), "--format", "html", "-o", str(file), "--plots", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    assert len(Reader(file.read_text(encoding="utf-8")).tags("svg")) == 4
    assert sorted(path.name for path in folder.iterdir()) == ["load.svg", "sources.svg", "tokens.svg", "ttft.svg"]
    for path in folder.iterdir():
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root[0].tag.endswith("}style")


def test_plots_come_with_any_format(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.path), "--plots", str(tmp_path / "plots")]) == 0
    assert capsys.readouterr().out.startswith("cyclic | engine on cpu")
    assert (tmp_path / "plots" / "ttft.svg").exists()


def test_a_log_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text("ttft_ms,arm\n10.0,a\n12.0,b\n11.0,a\n13.0,b\n")
    assert main(["report", "--csv", str(log), "--format", "html"]) == 0
    reader = Reader(capsys.readouterr().out)
    assert len(reader.tags("svg")) == 2
    assert "Run it again" not in reader.text


def test_a_log_that_tells_one_tier_only_has_no_plot_of_tiers(tmp_path: Path) -> None:
    log, folder = tmp_path / "log.csv", tmp_path / "plots"
    log.write_text("ttft_ms,cached_tokens_device,computed_tokens\n10.0,5,5\n12.0,0,10\n")
    assert main(["report", "--csv", str(log), "--plots", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["sources.svg", "ttft.svg"]


def test_the_help_and_the_plain_report_import_no_matplotlib(run: Run) -> None:
    for words in (["report", "--help"], ["report", str(run.path)]):
        code = (
            f"import sys; from kvbench.cli.main import main; main({words!r}); print(sorted({{'matplotlib', 'jinja2'}} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


# A browser.


PROBE = """<script>
const channel = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = text => { const [r, g, b] = channel(text); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
const contrast = (a, b) => { const [low, high] = [light(a), light(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05) };
const paper = getComputedStyle(document.body).backgroundColor;
const texts = [...document.querySelectorAll("p, td, th, li, dd, dt, h1, h2, figcaption")]
  .map(e => contrast(getComputedStyle(e).color, paper));
const plots = [...document.querySelectorAll("svg text")].filter(e => e.getAttribute("style").includes("currentColor"))
  .map(e => contrast(getComputedStyle(e).fill, paper));
document.body.dataset.probe = JSON.stringify({
  paper: light(paper), texts: Math.min(...texts), plots: Math.min(...plots), plotTexts: plots.length,
  wide: document.documentElement.scrollWidth - innerWidth,
  drawn: [...document.querySelectorAll("svg")].map(e => Math.round(e.getBoundingClientRect().height)),
});
</script>"""


@pytest.fixture
def served(page: str) -> Iterator[tuple[str, list[str]]]:
    """The page, and its copy with the probe at its end, on a port of this machine; and what was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = {"/page": page, "/probed": page.replace("</body>", f"{PROBE}</body>")}.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def browse(url: str, profile: Path, *options: str) -> tuple[str, list[str]]:
    """What the browser made of a page, and its console's lines."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
               "--no-first-run", "--disable-background-networking", "--enable-logging=stderr", *options, "--dump-dom", url]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian's package chromium)")


@needs_browser
def test_a_browser_shows_the_page_and_asks_for_nothing_else(served: tuple[str, list[str]], run: Run, tmp_path: Path) -> None:
    url, asked = served
    shown, console = browse(f"{url}/page", tmp_path / "profile")
    assert [line for line in console if "favicon" not in line] == []
    assert set(asked) - {"/favicon.ico"} == {"/page"}
    assert summarise(run).sentences[0] in shown
    assert shown.count("<svg") == 4


@needs_browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("dark", 500)])
def test_texts_and_plots_are_readable_and_nothing_sticks_out(
    served: tuple[str, list[str]], tmp_path: Path, scheme: str, width: int
) -> None:
    preferred = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    shown, _ = browse(f"{served[0]}/probed", tmp_path / "profile", preferred, f"--window-size={width},900")
    found = json.loads(re.search(r'data-probe="(.*?)"', shown)[1].replace("&quot;", '"'))  # type: ignore[index]
    assert (found["paper"] < 0.05) == (scheme == "dark")
    assert found["plotTexts"] > 30
    assert min(found["texts"], found["plots"]) >= 4.5  # WCAG 2.2, AA
    assert found["wide"] <= 0
    assert min(found["drawn"]) > 100


@needs_browser
def test_the_page_prints(served: tuple[str, list[str]], tmp_path: Path) -> None:
    paper = tmp_path / "page.pdf"
    browse(f"{served[0]}/page", tmp_path / "profile", f"--print-to-pdf={paper}")
    assert paper.read_bytes().startswith(b"%PDF")
