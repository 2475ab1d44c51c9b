"""A Markdown report as one self-contained HTML page: no script, no font, no file beside it."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from string import Template

from consilience.core.extras import require

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --text: #1d2329; --faint: #5c6670; --line: #dfe3e8;
  --page: #ffffff; --band: #f5f7f9; --link: #0a5ca8; }
@media (prefers-color-scheme: dark) {
  :root { --text: #dde3ea; --faint: #98a3af; --line: #323a43;
    --page: #14181d; --band: #1b2127; --link: #79b8ff; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.2rem 1.4rem 4rem; max-width: 62rem; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.5rem 0 .4rem; }
p { margin: .5rem 0; max-width: 46rem; }
em { color: var(--faint); }
a { color: var(--link); }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .34rem .75rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: baseline; }
th { background: var(--band); font-weight: 600; }
tbody tr:hover { background: var(--band); }
code, pre { font: .86em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  background: var(--band); border-radius: 4px; }
code { padding: .1em .3em; } pre { padding: .8rem 1rem; overflow-x: auto; } pre code { padding: 0; }
img { display: block; max-width: 100%; height: auto; margin: .9rem 0; padding: .7rem; background: #fff;
  border: 1px solid var(--line); border-radius: 8px; }
ul { padding-left: 1.2rem; }
</style>
</head>
<body>
$body
</body>
</html>
""")


def render_html(markdown: str, *, title: str, images: Mapping[str, str]) -> str:
    """Render a report; its images become part of the page.

    Args:
        markdown: CommonMark with tables; raw HTML in it is shown as text.
        title: of the page.
        images: SVG text by the address that the Markdown uses for it.

    Returns:
        The page.
    """
    module = require("markdown_it", extra="report", purpose="to write HTML reports")
    body = module.MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    # Cells break into lines where a table would be wider than the page; an interval stays in one piece.
    body = re.sub(r"\[([-+−.\d]+), ([-+−.\d]+)\]", r"[\1,&nbsp;\2]", body)
    body = body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
    for address, svg in images.items():
        encoded = base64.b64encode(svg.encode()).decode()
        body = body.replace(f'src="{html.escape(address)}"', f'src="data:image/svg+xml;base64,{encoded}"')
    return _PAGE.substitute(title=html.escape(title), body=body)
