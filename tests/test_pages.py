"""Every code block of README, of the documentation and of the examples' pages runs; links and images lead somewhere."""

from __future__ import annotations

import re
import sys

import pytest

from page_blocks import ELSEWHERE, LANGUAGES, PAGES, ROOT, prepare, read, run

WITH_BLOCKS = [page for page in PAGES if page not in ELSEWHERE and read(page).blocks]


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    found = read(page)
    for package in found.needs:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    prepare(found, tmp_path)
    known = set(sys.modules)
    try:
        run(page, found.blocks, tmp_path)
    finally:
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(tmp_path)):
                del sys.modules[name]


def test_every_block_has_a_language_that_says_what_becomes_of_it():
    for page in PAGES:
        text = (ROOT / page).read_text()
        fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
        assert len(fences) % 2 == 0, page
        languages = [fence.split(" ")[0] for fence in fences[::2]]
        assert set(languages) <= LANGUAGES, (page, languages)
        assert not re.search(r"\n\n    (?:fedax|\[\w+\]|import) ", text), (
            f"{page} has an indented block, which no test runs"
        )


def test_few_blocks_are_not_run_and_each_says_why():
    reasons = [block.not_run for page in WITH_BLOCKS for block in read(page).blocks if block.not_run]
    assert all(len(reason.split()) > 3 for reason in reasons)


@pytest.mark.parametrize("page", PAGES)
def test_links_and_images_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", text):
        if re.match(r"https?:", target) or target.startswith(
            ("reference/", "../reference/")
        ):  # built, as mkdocs checks
            continue
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), f"{page}: {target}"
        if anchor and file.suffix == ".md":
            assert anchor[1:] in _anchors(file.read_text()), f"{page}: {target}{anchor}"


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = (re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", slug) for slug in slugs}
