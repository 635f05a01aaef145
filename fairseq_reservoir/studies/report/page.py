"""The HTML page of a report, with a light and a dark theme and sortable tables. It loads no other files."""

import html

from .definitions import DEFINITIONS
from .tables import Table, as_html

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
.lead { color: var(--soft); margin-top: 0; }
.warning { border-left: 3px solid #d55e00; padding-left: .75rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
.figures { gap: 1.75rem 2rem; align-items: start; }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .35rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: inherit !important; }
.scroll { overflow-x: auto; border-top: 1.5px solid var(--ink); border-bottom: 1.5px solid var(--ink); }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums lining-nums; }
th, td { text-align: left; padding: .35rem .75rem; vertical-align: top; white-space: nowrap; }
td:last-child { white-space: normal; min-width: 14rem; overflow-wrap: anywhere; }
td.number:last-child { white-space: nowrap; min-width: 0; }
.number { text-align: right; }
thead th { border-bottom: 1px solid var(--ink); vertical-align: bottom; white-space: normal; min-width: 4.5rem; }
tbody tr:nth-child(even) > * { background: var(--band); }
tbody th { font-weight: 600; min-width: 11.5rem; max-width: 18rem; white-space: normal; overflow-wrap: break-word; }
tbody th { position: sticky; left: 0; background: var(--paper); }
th button { all: unset; cursor: pointer; font: inherit; font-weight: 600; line-height: 1.3; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
.notes p { color: var(--soft); font-size: .85rem; line-height: 1.45; margin: .5rem 0 0; }
dt { font-weight: 600; margin-top: .75rem; }
dd { margin: 0; max-width: 46rem; }
@media (max-width: 40rem) {
  main { padding: 1.25rem 1rem 3rem; }
  tbody th { min-width: 8rem; max-width: 9rem; }
  th, td { padding: .35rem .5rem; }
}
@media print { main { max-width: none; } .scroll { overflow: visible; } }
"""
_SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, place) => row.cells[place].dataset.value ?? row.cells[place].textContent;
  heads.forEach((head, place) => head.firstChild.addEventListener("click", () => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1, numbers = head.className === "number";
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
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(tables: list[Table], drawn: dict, title: str, lead: str, warnings: list[str]) -> str:
    """Return the page as text. ``drawn`` is the result of ``figures.figures``."""
    figures = "\n".join(
        f"<figure><figcaption>{html.escape(caption)}</figcaption>{_labelled(formats['svg'].decode(), caption)}</figure>"
        for caption, formats in drawn.values()
    )
    shown = f'<h2>Figures</h2>\n<div class="figures">\n{figures}\n</div>' if drawn else ""
    notes = "\n".join(f'<p class="warning">{html.escape(warning)}</p>' for warning in warnings)
    how = "\n".join(f"<dt>{html.escape(what)}</dt><dd>{html.escape(text)}</dd>" for what, text in DEFINITIONS)
    first, *others = map(as_html, tables)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body><main>
<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(lead)}</p>
{notes}
{first}
{shown}
<h2>Tables</h2>
{chr(10).join(others)}
<h2 id="how">How each number is computed</h2>
<dl>{how}</dl>
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _labelled(svg, caption):
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(caption)}" ', 1)
