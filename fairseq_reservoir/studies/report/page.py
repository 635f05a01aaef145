"""The page of a report, as HTML and as Markdown: answers, figures, tables, further figures, warnings and definitions.

The HTML page has a light and a dark theme and sortable tables. It loads no other files.
"""

import html
from dataclasses import dataclass

from .answers import Answer
from .cautions import Caution
from .definitions import DEFINITIONS
from .tables import Table, as_html, escape_markdown, markdown

_STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fdfdfc; --ink: #1b1f24; --soft: #5b6470; --grid: #d5dae0; --band: #f2f4f6; --link: #00568a;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #15181c; --ink: #e4e7eb; --soft: #9aa4b0; --grid: #363d46; --band: #1e2329; --link: #7cc0ee; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); }
body { font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--grid); }
h3 { font-size: 1rem; margin: 2rem 0 .5rem; overflow-wrap: anywhere; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
a { color: var(--link); }
.lead { color: var(--soft); margin: 0 0 1.5rem; }
.answers { display: grid; grid-template-columns: max-content minmax(0, 46rem); gap: .5rem 1.5rem; margin: 0 0 2.25rem; }
.answers dt { margin: 0; }
.answers dd { overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
.figures { gap: 1.75rem 2rem; align-items: start; }
.leading { grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 32rem)); }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .35rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: inherit !important; }
.scroll { overflow-x: auto; overscroll-behavior-x: contain; border-top: 1.5px solid var(--ink); border-bottom: 1.5px solid var(--ink); }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums lining-nums; }
.more { mask-image: linear-gradient(to left, transparent, #000 3rem); }
th, td { text-align: left; padding: .35rem .7rem; vertical-align: top; white-space: nowrap; }
.number { text-align: right; }
thead th { border-bottom: 1px solid var(--ink); vertical-align: bottom; white-space: normal; background: var(--paper); }
thead th.group { text-align: center; border-bottom: 1px solid var(--grid); }
thead th.first { position: sticky; left: 0; z-index: 1; }
tbody tr:nth-child(even) > * { background: var(--band); }
tbody th { font-weight: 600; min-width: 11.5rem; max-width: 18rem; white-space: normal; overflow-wrap: break-word; }
tbody th { position: sticky; left: 0; background: var(--paper); }
th button { all: unset; cursor: pointer; font: inherit; font-weight: 600; line-height: 1.3; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
summary { cursor: pointer; color: var(--link); margin: 1.5rem 0 .5rem; }
.how { font-weight: 400; font-size: .85rem; margin-left: .5rem; white-space: nowrap; }
.notes { font-size: .9rem; line-height: 1.5; columns: 2 30rem; column-gap: 3rem; margin: 0; }
.notes dt { break-after: avoid; }
.notes dd { break-inside: avoid; }
.notes p { margin: .25rem 0 0; }
dt { font-weight: 600; margin-top: .75rem; }
dd { margin: 0; max-width: 46rem; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  main { padding: 1.25rem 1rem 3rem; }
  .answers { display: block; }
  .answers dt { margin-top: .75rem; }
  tbody th { min-width: 8rem; max-width: 9rem; }
  th, td { padding: .35rem .5rem; }
}
@media print { main { max-width: none; } .scroll { overflow: visible; } }
"""
_SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.querySelectorAll("[data-column]")], body = table.tBodies[0];
  const key = (row, place) => row.cells[place].dataset.value ?? row.cells[place].textContent;
  heads.forEach(head => head.firstChild.addEventListener("click", () => {
    const place = Number(head.dataset.column), numbers = head.classList.contains("number");
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a, place), key(b, place)];
      if (!numbers) return sign * x.localeCompare(y, undefined, {numeric: true});
      const [u, v] = [parseFloat(x), parseFloat(y)];
      if (isNaN(u) || isNaN(v)) return isNaN(u) - isNaN(v);
      return sign * (u - v);
    });
    body.append(...rows);
  }));
}
for (const box of document.querySelectorAll(".scroll")) {
  const fade = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  box.addEventListener("scroll", fade);
  new ResizeObserver(fade).observe(box);
}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
# The page shows the first two of these figures above the tables. If none of them is drawn, it shows the first figure there.
_LEADING = ("against", "over_seeds_bleu", "over_seeds_test_loss", "over_seeds")


@dataclass(frozen=True)
class Page:
    """The content of a page.

    Attributes:
        title: title of the page.
        lead: a line below the title.
        answers: questions and answers.
        tables: tables in reading order.
        figures: the figures, as ``figures.figures`` returns them.
        cautions: warnings.
    """

    title: str
    lead: str
    answers: list[Answer]
    tables: list[Table]
    figures: dict[str, tuple[str, dict[str, bytes]]]
    cautions: list[Caution]

    @property
    def leading(self) -> list[str]:
        """Names of the figures above the tables."""
        return [name for name in _LEADING if name in self.figures][:2] or list(self.figures)[:1]

    @property
    def definitions(self) -> list[tuple[str, str, list[str]]]:
        """Tuples (anchor, title, paragraphs): first the notes of each table, then the general ``DEFINITIONS``."""
        of_tables = [(table.name, table.title, table.notes) for table in self.tables]
        return of_tables + [("", title, [text]) for title, text in DEFINITIONS]


def as_page(page: Page) -> str:
    """Return the page in HTML."""
    title = html.escape(page.title)
    answered = "\n".join(f"<dt>{html.escape(one)}</dt><dd>{html.escape(two)}</dd>" for one, two in page.answers)
    others = [name for name in page.figures if name not in page.leading]
    further = f"<h2>Further figures</h2>\n{_figures(page, others)}" if others else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body><main>
<h1>{title}</h1>
<p class="lead">{html.escape(page.lead)} {_links(page)}</p>
<dl class="answers">
{answered}
</dl>
{_figures(page, page.leading, " leading")}
<h2>Tables</h2>
{chr(10).join(map(as_html, page.tables))}
{further}
{_warnings(page.cautions)}
<h2 id="definitions">How each number is computed</h2>
<dl class="notes">
{chr(10).join(map(_definition, page.definitions))}
</dl>
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _links(page):
    count = sum(len(caution.lines) for caution in page.cautions)
    found = f'<a href="#warnings">{count} warning{"s" * (count != 1)}</a>, ' if count else "No warnings, "
    return f'{found}<a href="#definitions">definitions</a>.'


def _figures(page, names, kind=""):
    if not names:
        return ""
    drawn = []
    for name in names:
        caption, formats = page.figures[name]
        label = html.escape(caption)
        svg = formats["svg"].decode().replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
        drawn.append(f"<figure><figcaption>{label}</figcaption>{svg}</figure>")
    return f'<div class="figures{kind}">\n{chr(10).join(drawn)}\n</div>'


def _warnings(cautions):
    if not cautions:
        return ""
    shown = "\n".join(
        f"<dt>{html.escape(title)}</dt><dd>{''.join(f'<p>{html.escape(line)}</p>' for line in lines)}</dd>"
        for title, lines in cautions
    )
    return f'<h2 id="warnings">Warnings</h2>\n<dl class="notes">\n{shown}\n</dl>'


def _definition(definition):
    anchor, title, paragraphs = definition
    place = f' id="how-{anchor}"' if anchor else ""
    text = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs)
    return f"<dt{place}>{html.escape(title)}</dt><dd>{text}</dd>"


def as_markdown(page: Page) -> str:
    """Return the page in Markdown."""
    lines = [f"# {escape_markdown(page.title)}", "", escape_markdown(page.lead), ""]
    lines += [f"* **{escape_markdown(one)}** {escape_markdown(two)}" for one, two in page.answers]
    lines += ["", *_markdown_figures(page, page.leading)]
    for table in page.tables:
        shown = markdown(table, with_notes=False)
        if table.fold:
            lines += ["<details>", f"<summary>{html.escape(table.fold)}</summary>", "", shown, "", "</details>", ""]
        else:
            lines += [f"## {escape_markdown(table.title)}", "", shown, ""]
    lines += _markdown_figures(page, [name for name in page.figures if name not in page.leading])
    if page.cautions:
        lines += ["## Warnings", ""]
        for title, (first, *others) in page.cautions:
            start = f"* **{title}:**"
            lines += [f"{start} {escape_markdown(first)}"] if not others else [start]
            lines += [f"  * {escape_markdown(line)}" for line in (first, *others) if others]
        lines += [""]
    lines += ["## How each number is computed", ""]
    lines += [
        f"* **{escape_markdown(title)}:** {escape_markdown(' '.join(texts))}" for _, title, texts in page.definitions
    ]
    return "\n".join([*lines, ""])


def _markdown_figures(page, names):
    return [line for name in names for line in (f"![{escape_markdown(page.figures[name][0])}](figures/{name}.png)", "")]
