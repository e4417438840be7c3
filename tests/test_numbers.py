"""Measured numbers of README and of the pages are those of the saved results, or name the script that makes them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from fedax.algorithms import ALGORITHMS

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs/generators"))

from saved_numbers import RESULTS, is_shown, numbers, rewritten  # noqa: E402

TABLE = re.compile(r"((?:^.*\n){0,3})((?:^\|.*\n)+)", re.MULTILINE)
MEASURED = ("docs/performance.md", "docs/models.md", "docs/deploy.md")


def tables(page):
    """Each table of a page with the lines before it."""
    return [(match[1], match[2]) for match in TABLE.finditer((ROOT / page).read_text())]


def test_readme_has_the_saved_numbers():
    text = (ROOT / "README.md").read_text()
    assert text.count("<!-- number: ") >= 2
    assert rewritten(text) == text, "python docs/generators/saved_numbers.py writes them again"
    assert f"| {len(ALGORITHMS)} |" in text
    assert f"{len(ALGORITHMS)} methods" in text
    own = sum(method.personalised for method in ALGORITHMS.values())
    assert f"{own} methods, judged client by client" in text


@pytest.mark.parametrize("page", MEASURED)
def test_tables_of_measured_numbers_are_those_that_are_saved(page):
    checked = 0
    for before, table in tables(page):
        if mark := re.search(r"<!-- numbers: (\S+) -->", before):
            found = set(numbers(json.loads((RESULTS / mark[1]).read_text())))
            for row in table.splitlines()[2:]:
                label, *cells = row.strip("| ").split(" | ")
                for cell in cells:
                    for written in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w])", cell):
                        assert is_shown(written, found), f"{page}: {label}: {written} is not in {mark[1]}"
                        checked += 1
    assert checked > 5


def test_every_table_of_the_performance_page_says_where_it_is_from():
    text = (ROOT / "docs/performance.md").read_text()
    for before, table in tables("docs/performance.md"):
        marked = re.search(r"<!-- (numbers: \S+|made by: \S+|growth|processes) -->", before)
        assert marked, f"no mark before {table.splitlines()[0]}"
    for script in set(re.findall(r"benchmarks/(\w+\.py)", text)):
        assert (ROOT / "benchmarks" / script).exists(), script


@pytest.mark.parametrize("page", ["docs/personal_results.md", "docs/composite_results.md"])
def test_each_section_of_results_names_the_command_that_makes_it(page):
    sections = re.split(r"^## ", (ROOT / page).read_text(), flags=re.MULTILINE)
    for section in sections[1:]:
        if "|---" in section:
            assert re.search(r"fedax reproduce [\w-]+|benchmarks/\w+\.py", section), section.splitlines()[0]


@pytest.mark.parametrize("name", ["attacks", "privacy"])
def test_a_page_has_the_table_and_the_picture_of_the_saved_result(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / f"benchmarks/{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    saved = json.loads(script.RESULTS.read_text())
    found = saved.get("rows", saved.get("accuracy"))
    page = script.PAGE.read_text()
    assert script.BEGIN + script.table(found) + script.END in page
    assert script.PICTURE.read_text() == script.picture(found)
    assert f"]({script.PICTURE.name})" in page


def test_the_page_on_networks_tells_how_runs_were_killed():
    saved, text = json.loads((RESULTS / "kills.json").read_text()), (ROOT / "docs/deploy.md").read_text()
    first, second = (
        {key: sum(row.get(key, 0) for row in saved[session]) for key in ("kills", "real", "same bits")}
        for session in ("runs", "real")
    )
    assert second["real"] == second["kills"]
    assert f"{first['same bits']:,} of {first['kills']:,} to the same bits, {first['real']} of them" in text
    assert f"{second['same bits']:,} of {second['kills']:,}, all by SIGKILL" in text
    assert f"{first['kills'] - first['real']:,} were not killed" in text
    assert f"over {len({row['method'] for row in saved['real']})} methods" in text


def test_the_page_on_networks_has_the_epsilons_of_the_accountant():
    pytest.importorskip("dp_accounting")
    from fedax.privacy.accounting import known_epsilon, secret_epsilon

    (table,) = (table for _, table in tables("docs/deploy.md") if "50 of 1000 clients" in table)
    for row in table.splitlines()[2:]:
        noise, known, secret = (float(cell) for cell in row.strip("| ").split(" | "))
        assert f"{known_epsilon(noise, 1e-5, 20):.2g}" == f"{known:.2g}", row
        assert f"{secret_epsilon(noise, 1e-5, 200, 50, 1000):.2g}" == f"{secret:.2g}", row


def test_the_page_on_networks_tells_how_many_messages_were_fuzzed():
    saved, text = json.loads((RESULTS / "fuzzed_messages.json").read_text()), (ROOT / "docs/deploy.md").read_text()
    assert (saved["servers"], saved["servers_stopped"]) == (7, 0)
    assert f"| {saved['fuzzed']:,}; no server of seven stopped |" in text
