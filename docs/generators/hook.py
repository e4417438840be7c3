"""What `make docs` adds to the pages in docs/: the reference, KaTeX, the examples, and files that pages link to."""

from __future__ import annotations

import posixpath
import re
import sys
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
for place in (HERE, ROOT / "src"):
    sys.path.insert(0, str(place))

import commands
import experiment_file
import methods
import names
import reference

#: formulas as MathML, which browsers typeset
START = """renderMathInElement(document.body, {output: "mathml", throwOnError: false, delimiters: [
  {left: "\\\\(", right: "\\\\)", display: false}, {left: "\\\\[", right: "\\\\]", display: true}]});
// KaTeX leaves spaces as bare text, which MathML ignores.
for (const row of document.querySelectorAll("math mrow, math mstyle, math msub, math msup")) {
  for (const node of [...row.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE)) {
    const space = document.createElementNS("http://www.w3.org/1998/Math/MathML", "mtext");
    space.textContent = node.textContent;
    node.replaceWith(space);
  }
}
"""
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?(\))")
#: what a page would load from the network when it is read
LOADS = re.compile(r'<(?:script|img)[^>]*\ssrc="(https?:[^"]+)"|<link[^>]*\srel="stylesheet"[^>]*"(https?:[^"]+)"')
_generated: dict[str, str] = {}


def generated() -> dict[str, str]:
    """The generated pages, by their path in the site's source."""
    if not _generated:
        _generated.update(reference.pages())
        _generated.update(methods.pages())
        _generated["reference/experiment_file.md"] = experiment_file.page()
        _generated["reference/names.md"] = names.page()
        _generated["reference/commands.md"] = commands.page()
    return _generated


def examples() -> dict[str, Path]:
    """The examples' own pages, by their path in the site's source."""
    return {f"examples/{page.parent.name}.md": page for page in sorted((ROOT / "examples").glob("*/README.md"))}


def on_config(config: Any) -> Any:
    """The reference's pages have their places in the navigation."""
    every = generated()
    cards = [page for page in every if page.startswith("reference/methods/") and not page.endswith("index.md")]
    rooms = [{reference.ROOMS[room][0]: f"reference/{room.replace('.', '_')}.md"} for room in reference.ROOMS]
    for section in config.nav:
        if "Reference" in section:
            section["Reference"][-2] = {
                "Methods": ["reference/methods/index.md", *({_title(every[c]): c} for c in cards)]
            }
            section["Reference"][-1] = {"Python": rooms}
        if "Tutorials" in section:
            section["Tutorials"].append({"Examples": [{_title(p.read_text()): c} for c, p in examples().items()]})
    absent = [name for name in ("leaderboard.md",) if not (ROOT / "docs" / name).exists()]
    config.nav = [item for item in config.nav if not set(map(str, item.values())) & set(absent)]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Generated pages, KaTeX's script, the examples, and what pages link to beyond docs/."""
    katex = package_files("sphinxcontrib")
    added = {**generated(), "katex/start.js": START}
    for name in ("katex.min.js", "auto-render.min.js"):
        added[f"katex/{name}"] = (katex / name).read_text()
    font = (package_files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf").read_bytes()
    files.append(File.generated(config, "katex/STIXTwoMath-Regular.ttf", content=font))
    for place, page in examples().items():
        added[place] = page.read_text()
    for place, content in added.items():
        files.append(File.generated(config, place, content=content))
    for place in sorted({place for page in files.documentation_pages() for place in _linked(page)}):
        files.append(File.generated(config, f"files/{place}", content=(ROOT / place).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links that lead out of docs/ in the repository lead to the same thing within the site."""
    return LINK.sub(lambda found: _within_site(found, page.file.src_uri), markdown)


def on_post_build(config: Any) -> None:
    """No page loads anything from the network."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        if found := LOADS.search(page.read_text()):
            raise PluginError(f"{page.relative_to(config.site_dir)} loads {found[1] or found[2]}")


def _within_site(found: re.Match[str], source: str) -> str:
    target = _place(source, found[2])
    if target is None:
        return found[0]
    inside = _site_path(target)
    return f"{found[1]}{posixpath.relpath(inside, posixpath.dirname(source) or '.')}{found[3] or ''}{found[4]}"


def _site_path(target: str) -> str:
    """Where a file of the repository is in the site's source."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if (ROOT / target).is_dir() and (ROOT / target / "README.md").exists():
        target += "/README.md"
    if target.startswith("examples/") and target.endswith("/README.md"):
        return f"examples/{target.split('/')[1]}.md"
    return f"files/{target}"


def _linked(page: Any) -> set[str]:
    """The files beyond docs/ that a page links to, but for those that are pages of the site."""
    text = page.content_string
    targets = {_place(page.src_uri, link[2]) for link in LINK.finditer(text)}
    return {t for t in targets if t and _site_path(t).startswith("files/") and (ROOT / t).is_file()}


def _place(source: str, link: str) -> str | None:
    """The file of the repository that a page's link leads to, if it leads out of docs/, or from an example."""
    if re.match(r"[a-z]+:", link):
        return None
    origin = posixpath.dirname(f"docs/{source}")
    if source.startswith("examples/"):
        origin = source.removesuffix(".md")
    target = posixpath.normpath(posixpath.join(origin, link))
    beyond = not target.startswith("docs/") or source.startswith("examples/")
    return target if beyond and not target.startswith("..") and (ROOT / target).exists() else None


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")
