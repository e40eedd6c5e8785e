"""The report as one self-contained page: no script, no network, and the same markup as a notebook's output cell."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lightning_devcheck._report.edits import fix_label, fix_words, small_diff
from lightning_devcheck._report.lanes import Lane, lanes_of, meeting_of
from lightning_devcheck._report.records import Finding, Operand, Origin
from lightning_devcheck._report.text import (
    DOCS,
    ReportLike,
    escape_control,
    group_by_cause,
    location,
    spell_checked,
    spell_where,
    told_of,
)

# the browser itself refuses whatever a hostile name could smuggle past the escaping
POLICY = "default-src 'none'; style-src 'unsafe-inline'"

# every selector starts with .devcheck: in a notebook the page around it is not ours
STYLE = """
.devcheck { color-scheme: light dark; --ink: #1f2328; --dim: #59636e; --paper: #fff; --card: #f6f8fa; --line: #d1d9e0;
  --error: #b3202c; --warning: #855300; --note: #0757ba; --good: #116329;
  color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
  box-sizing: border-box; max-width: 62rem; margin: 0 auto; padding: 1rem; text-align: start; }
@media (prefers-color-scheme: dark) { .devcheck { --ink: #e6edf3; --dim: #9ba7b4; --paper: #0d1117; --card: #161b22;
  --line: #3d444d; --error: #ff8a84; --warning: #e3b341; --note: #79b8ff; --good: #56d364; } }
.devcheck h1 { font-size: 1.5rem; line-height: 1.25; margin: .25rem 0; }
.devcheck h2 { font-size: 1.15rem; line-height: 1.3; margin: 0; }
.devcheck h3 { font-size: .95rem; margin: 0 0 .5rem; }
.devcheck h1, .devcheck h2, .devcheck h3 { color: inherit; font-weight: 600; }
.devcheck p { margin: .5rem 0; white-space: pre-line; }
.devcheck a { color: var(--note); }
.devcheck a:focus-visible { outline: 3px solid var(--note); outline-offset: 2px; }
.devcheck code, .devcheck pre { font: .875rem/1.45 ui-monospace, Menlo, Consolas, monospace; color: inherit;
  background: none; padding: 0; border: 0; }
.devcheck pre { white-space: pre-wrap; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem .75rem; margin: .25rem 0 .75rem; }
.devcheck .dim { color: var(--dim); }
.devcheck article.warning { --error: var(--warning); } .devcheck article.note { --error: var(--note); }
.devcheck .error { color: var(--error); } .devcheck .warning { color: var(--warning); }
.devcheck .note { color: var(--note); } .devcheck .good { color: var(--good); }
.devcheck article { border: 1px solid var(--line); border-left: 5px solid currentColor; border-radius: 8px;
  padding: 1rem; margin: 1.25rem 0; }
.devcheck article > * { color: var(--ink); }
.devcheck .badge { font-size: .8rem; font-weight: 600; text-transform: uppercase; letter-spacing: .04em; }
.devcheck .picture { display: flex; flex-wrap: wrap; gap: .6rem 1rem; margin: 1rem 0; }
.devcheck .devices { flex: 3 1 18rem; min-width: 0; } .devcheck .lines { flex: 2 1 18rem; min-width: 0; }
.devcheck .lanes { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.5rem, 1fr)); gap: .6rem;
  margin: 0; padding: 0; list-style: none; }
.devcheck .lane { border: 1px dashed var(--line); border-bottom: 4px solid var(--line); border-radius: 8px 8px 0 0;
  padding: .6rem; margin: 0; min-width: 0; }
.devcheck .lane.wrong { border-bottom-color: var(--error); } .devcheck .lane.right { border-bottom-color: var(--good); }
.devcheck .tensors { list-style: none; margin: 0; padding: 0; }
.devcheck .tensor { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .4rem .5rem;
  margin: 0 0 .4rem; }
.devcheck .tensor.culprit { border: 2px solid var(--error); }
.devcheck .tensor code { display: block; font-weight: 600; }
.devcheck .tensor span, .devcheck .lane p { display: block; font-size: .85rem; }
.devcheck .operator { border: 1px solid var(--dim); border-radius: 1rem; padding: .1rem .75rem; margin: 0 0 .4rem; }
.devcheck .operator span { font-size: .85rem; }
.devcheck .meet { border: 2px solid var(--error); border-top: 0; border-radius: 0 0 8px 8px; background: var(--card);
  padding: .4rem .6rem; margin: 0; text-align: center; }
.devcheck .meet code { font-weight: 600; }
.devcheck dl { margin: 0; } .devcheck dt { font-size: .85rem; color: var(--dim); } .devcheck dd { margin: 0 0 .4rem; }
""".strip()


def render_html(report: ReportLike) -> str:
    """Return the report as a whole page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(_headline(report))} - lightning-devcheck</title>\n"
        "<style>\nbody { margin: 0; } @media (prefers-color-scheme: dark) { body { background: #0d1117; } }\n</style>\n"
        f"</head>\n<body>\n{render_fragment(report, page=True)}\n</body>\n</html>\n"
    )


def render_fragment(report: ReportLike, *, page: bool = False) -> str:
    """Return the report as an element to put into a page; as ``page`` it is the main part, with anchors."""
    groups = group_by_cause(report.findings)
    tag = "main" if page else "div"
    parts = [f"<h1>{_text(_headline(report))}</h1>"]
    checked = spell_checked(report.checked).strip(" ()")
    if checked:
        parts.append(f'<p class="dim">{_text(checked)}</p>')
    if page and len(groups) > 1:
        parts.append(_contents(groups))
    parts += [_finding(group, report.world_size, number if page else 0) for number, group in enumerate(groups, 1)]
    if report.not_checked:
        reasons = "".join(f"<li>{_text(reason)}</li>" for reason in report.not_checked)
        parts.append(f"<section><h2>Not checked</h2><ul>{reasons}</ul></section>")
    return f'<style>\n{STYLE}\n</style>\n<{tag} class="devcheck">\n' + "\n".join(parts) + f"\n</{tag}>"


def _text(text: str) -> str:
    return escape(escape_control(text))


def _headline(report: ReportLike) -> str:
    groups = group_by_cause(report.findings)
    counts = {severity: sum(group[0].severity == severity for group in groups) for severity in _SEVERITIES}
    parts = [f"{count} {severity}{'s' if count > 1 else ''}" for severity, count in counts.items() if count]
    return ", ".join(parts) or "No findings"


_SEVERITIES = ("error", "warning", "note")


def _contents(groups: Sequence[Sequence[Finding]]) -> str:
    items = (
        f'<li><a href="#finding-{number}">{_text(group[0].severity)}: {_text(group[0].what)}</a></li>'
        for number, group in enumerate(groups, 1)
    )
    return f'<nav aria-label="Findings"><ol>{"".join(items)}</ol></nav>'


def _finding(group: Sequence[Finding], world_size: int, number: int) -> str:
    first = group[0]
    anchor = f' id="finding-{number}"' if number else ""
    severity = first.severity if first.severity in _SEVERITIES else "note"
    where = spell_where(group, world_size).strip(" ()")
    parts = [
        f'<article class="{severity}"{anchor}>',
        f'<p class="badge {severity}">{_text(first.severity)}</p>',
        f"<h2>{_text(first.what)}</h2>",
        f'<p class="dim">{_text(where)}</p>' if where else "",
        _picture(group),
        f"<h3>Why</h3><p>{_text(first.why)}</p>" if first.why else "",
        _fix(told_of(group)),
        f'<p class="dim">Rule: {_text(first.rule)} ({DOCS}#{_text(first.rule)})</p>',
        "</article>",
    ]
    return "\n".join(part for part in parts if part)


def _fix(finding: Finding) -> str:
    """Write what to do, and what the edits change in the file."""
    words = fix_words(finding)
    if not words:
        return ""
    parts = [f"<h3>{fix_label(finding)}</h3><pre>{_text(words)}</pre>"]
    diff = small_diff(finding)
    if diff:
        rows = (_diff_row(row) for row in diff.splitlines())
        parts.append(f'<pre class="diff">{"".join(rows)}</pre>')
    return "".join(parts)


def _diff_row(row: str) -> str:
    """Write a line of a diff; the sign at its beginning tells as much as its colour."""
    kinds = {"+": "good", "-": "error", "@": "dim"}
    return f'<span class="{kinds.get(row[:1], "")}">{_text(row)}</span>\n'


def _picture(group: Sequence[Finding]) -> str:
    lanes = "\n".join(_lane(lane) for lane in lanes_of(group))
    name, does = meeting_of(group[0])
    meeting = f'<p class="meet">{does} <code>{_text(name)}</code></p>' if name else ""
    devices = f'<div class="devices">\n<ul class="lanes" aria-label="Devices">\n{lanes}\n</ul>\n{meeting}</div>'
    return f'<div class="picture">\n{devices}\n{_lines(group[0])}\n</div>'


def _lane(lane: Lane) -> str:
    items = [_tensor(tensor, culprit=True) for tensor in lane.culprits]
    items += [_tensor(tensor, culprit=False) for tensor in lane.others]
    items += [_operator(*operator) for operator in lane.operators]
    kind = " wrong" if lane.culprits else " right" if lane.expected else ""
    belongs = '<p class="good">where it belongs</p>' if lane.expected else ""
    listed = f'<ul class="tensors">{"".join(items)}</ul>' if items else ""
    return f'<li class="lane{kind}"><h3>{_text(lane.device)}</h3>{belongs}{listed}</li>'


def _operator(name: str, where: str) -> str:
    return f'<li class="operator"><code>{_text(name)}</code> <span class="dim">{where}</span></li>'


def _tensor(tensor: Operand, *, culprit: bool) -> str:
    detail = f'<span class="dim">{_text(tensor.detail)}</span>' if tensor.detail else ""
    mark = '<span class="error">this one</span>' if culprit else ""
    return f'<li class="tensor{" culprit" if culprit else ""}"><code>{_text(tensor.name)}</code>{detail}{mark}</li>'


def _lines(finding: Finding) -> str:
    places = [("made here", finding.origin), ("met the others here", finding.used)]
    items = "".join(_place(words, place) for words, place in places if place is not None)
    return f'<dl class="lines">{items}</dl>' if items else '<p class="lines dim">no source line is known</p>'


def _place(words: str, place: Origin) -> str:
    function = f" in {place.function}" if place.function else ""
    code = f"<dd><code>{_text(place.line)}</code></dd>" if place.line else "<dd>no source at hand</dd>"
    return f"<dt>{words}, {_text(location(place) + function)}</dt>{code}"
