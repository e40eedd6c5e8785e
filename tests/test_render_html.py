"""The report as a page: what it says, what it escapes, and how a browser and a screen reader take it."""

from __future__ import annotations

import dataclasses
import html
import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from lightning_devcheck import Report, explain, simulate_cuda
from lightning_devcheck._report.records import Operand, Operator, Origin
from tests.test_records import FINDING

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js"))
HOSTILE = [
    "<script>document.title = 'owned'</script>",
    "</style></code></pre><img src=x onerror=\"document.title='owned'\">",
    '" onmouseover="document.title=1',
    "' autofocus onfocus='document.title=1",
    "&lt;b&gt; &amp; &#x3c;",
    "right\u202eleft \x1b[2J \x00 \ud800",
    "name\nof two lines",
    "x" * 4000,
    "损失 = 损失 + λ·损失",
    "",
]
NOTE = dataclasses.replace(FINDING, rule="host-read", severity="note", what="loss.item() waits")
VOID = {"meta", "img", "br", "hr", "input", "link"}


class Page(HTMLParser):
    """Collects the elements with their attributes, the text, and whether every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def tags(self):
        return {tag for tag, _ in self.elements}


def hostile_finding(text):
    """A finding whose every text is the hostile one."""
    place = Origin(f"{text}.py", 3, text, text)
    return dataclasses.replace(
        FINDING, what=text, name=text, device=text, expected=text, dtype=text, origin=place, used=place,
        others=(Operand(text, text, text),), operators=(Operator(text, text), Operator(text)),
        why=text, fix=text, rule=text, severity=text,
    )  # fmt: skip


def browse(page, tmp_path, *options):
    """Open the page in Chromium and return the document after it has settled."""
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--virtual-time-budget=20000"]
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", *options, "--dump-dom", path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_page_says_what_the_text_says():
    """What, devices, names, lines, why, fix and rule of a finding are all on the page."""
    words = "".join(Page(Report((FINDING,), {"tensors": 1200}, world_size=2).to_html()).words)
    for text in ("1 error", "checked: 1,200 tensors", FINDING.what, "step 0, global rank 0 of 2", "cuda:0"):
        assert text in words
    for text in ("train.py:38 in training_step", "loss = torch.zeros(1)", "train.py:42", "loss += term", "214 tensors"):
        assert text in words
    assert FINDING.why in words
    assert FINDING.fix in words
    assert "docs/rules.md#loss-device" in words


def test_devices_are_lanes_with_their_tensors():
    """The culprit stands in its own device's lane, the others in theirs, and the right lane says so."""
    page = Report((FINDING,)).to_html()
    cpu, cuda = page.split('<li class="lane')[1:]
    assert ">cpu</h3>" in cpu
    assert "<code>loss</code>" in cpu
    assert ">cuda:0</h3>" in cuda
    assert "where it belongs" in cuda
    assert "<code>parameters</code>" in cuda


def test_operators_stand_around_the_crossing():
    """The operator before a move is in its device's lane, the move between the lanes, what follows in the other."""
    operators = (Operator("mse_loss", "cuda:0"), Operator("to"), Operator("add", "cpu"))
    page = Report((dataclasses.replace(FINDING, operators=operators),)).to_html()
    cpu, cuda = page.split('<li class="lane')[1:]
    assert '<code>add</code> <span class="dim">after the move</span>' in cpu
    assert '<code>mse_loss</code> <span class="dim">before the move</span>' in cuda
    assert '<p class="meet">moved by <code>to</code></p>' in cuda.partition("</ul>\n")[2]


def test_operator_of_an_exception_is_drawn():
    """The operator that torch names in its message is where the lanes meet."""
    with simulate_cuda(devices=1), pytest.raises(RuntimeError) as caught:
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2)
    assert '<p class="meet">met in <code>mm</code></p>' in explain(caught.value).to_html()


def test_lines_stand_beside_the_lanes():
    """The user's lines are next to the devices, in one row where there is room."""
    page = Report((FINDING,)).to_html()
    picture = page.partition('<div class="picture">')[2].partition("<h3>Why")[0]
    assert picture.index('class="devices"') < picture.index('<dl class="lines">')
    assert "flex-wrap: wrap" in page


def test_ranks_of_one_cause_share_a_picture():
    """One cause on several ranks is one article, with each rank's name in its lane."""
    ranks = [dataclasses.replace(FINDING, global_rank=rank, device=f"cuda:{rank - 1}") for rank in (1, 2)]
    page = Report(tuple(ranks), world_size=4).to_html()
    assert page.count("<article") == 1
    assert "loss (rank 1)" in page
    assert "loss (rank 2)" in page


def test_findings_are_listed_on_top_with_links():
    """Several findings start with a list of links, each to an article that exists."""
    page = Page(Report((FINDING, NOTE)).to_html())
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert (
        links == [f"#{attrs['id']}" for tag, attrs in page.elements if tag == "article"] == ["#finding-1", "#finding-2"]
    )
    assert "1 error, 1 note" in page.words


def test_page_without_findings():
    """An empty report says that nothing was found, how much was checked and what was not."""
    words = "".join(Page(Report(checked={"tensors": 3}, not_checked=("a <compiled> region",)).to_html()).words)
    assert "No findings" in words
    assert "checked: 3 tensors" in words
    assert "a <compiled> region" in words


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_strings_stay_text(text, tmp_path):
    """Whatever a name or line holds, the page has the same elements and attributes as with a harmless one."""
    path = tmp_path / "report.html"
    page = Report((hostile_finding(text), NOTE), not_checked=(text,)).to_html(path)
    assert path.read_text(encoding="utf-8") == page
    parsed, harmless = Page(page), Page(Report((hostile_finding("x"), NOTE), not_checked=("x",)).to_html())
    assert not parsed.open
    allowed = {repr(element) for element in harmless.elements}
    assert text == "" or {repr(element) for element in parsed.elements} == allowed
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_page_is_self_contained():
    """The page names no address, runs no script, and tells the browser to allow neither."""
    page = Page(Report((FINDING, NOTE)).to_html())
    assert not page.tags() & {"script", "img", "link", "iframe", "object", "form"}
    assert not [attrs for _, attrs in page.elements if "src" in attrs or any(key.startswith("on") for key in attrs)]
    policy = next(attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "http://" not in Report((FINDING,)).to_html()
    assert "@import" not in Report((FINDING,)).to_html()


def test_page_is_light_and_dark_and_fits_a_phone():
    """The page follows the reader's colour scheme and sets the viewport of a phone."""
    page = Report((FINDING,)).to_html()
    assert "prefers-color-scheme: dark" in page
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page


def test_notebook_cell_is_a_part_of_a_page():
    """A notebook gets an element without anchors, whose styles touch nothing of the page around it."""
    cell = Report((FINDING, NOTE))._repr_html_()
    assert Page(cell).tags().isdisjoint({"html", "head", "body", "main", "nav"})
    assert not [attrs for _, attrs in Page(cell).elements if "id" in attrs]
    style = cell.split("<style>")[1].split("</style>")[0].replace("@media (prefers-color-scheme: dark) {", "")
    selectors = [part.split("}")[-1].strip() for part in style.split("{")[:-1]]
    assert all(one.strip().startswith(".devcheck") for selector in selectors for one in selector.split(","))


def test_unwritable_path_is_the_systems_error(tmp_path):
    """A folder that does not exist is told by the system's own error, with the path."""
    with pytest.raises(FileNotFoundError, match=r"missing.*report\.html"):
        Report().to_html(tmp_path / "missing" / "report.html")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome")
def test_chromium_runs_nothing_of_a_hostile_report(tmp_path):
    """A browser that opens a report full of hostile strings shows them and runs none."""
    findings = tuple(hostile_finding(text) for text in HOSTILE)
    page = Page(browse(Report((FINDING, *findings)).to_html(), tmp_path))
    assert not page.tags() & {"script", "img"}
    assert "owned" not in page.words[: page.words.index(FINDING.what)][0]
    assert "document.title = 'owned'" in "".join(page.words)


@pytest.mark.skipif(CHROMIUM is None or not AXE.is_file(), reason="needs Chromium, and axe-core (npm) at AXE_CORE")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_axe_finds_no_accessibility_error(tmp_path, scheme, width):
    """axe-core, run in Chromium on a phone's and a desktop's width, light and dark, has nothing to say."""
    page = Report((FINDING, NOTE, hostile_finding(HOSTILE[0])), {"steps": 2}, ("a region",), 2).to_html()
    run = (
        "axe.run().then(r => { document.body.innerHTML = '<pre>' + r.passes.length + ' passes, violations: '"
        "+ r.violations.map(v => v.id + v.nodes.map(n => n.target)).join() + '.</pre>' })"
    )
    policy = next(line for line in page.splitlines() if "Content-Security-Policy" in line)
    page = page.replace(policy, "").replace(
        "</body>", f"<script>{AXE.read_text()}</script><script>{run}</script></body>"
    )
    options = [f"--window-size={width},900", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"]
    said = html.unescape(browse(page, tmp_path, *options))
    assert " passes, violations: .</pre>" in said
