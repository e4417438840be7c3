"""`pip install fedax` alone: runs and reports need no extra, and what needs one says which. And its description."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import fedax

ROOT = Path(__file__).parent.parent
PACKAGES = ("pandas", "pooch", "requests", "pyarrow", "PIL", "matplotlib", "optuna", "flwr", "torch", "datasets")
ALONE = f"""
import sys
for name in {PACKAGES}:
    sys.modules[name] = None  # an import of it fails
from pathlib import Path
from fedax.cli import invoke
Path("new.csv").write_text("x,y\\n1,2\\n")
experiment = '''
rounds = 1
data = {{ name = "digits", partition = {{ name = "IID", clients = 2 }} }}
model.name = "logistic"
algorithm = {{ name = "FedAvg", lr = 0.1 }}
'''
Path("run.toml").write_text(experiment)
assert invoke(["run", "run.toml", "--quiet", "--out", "run"]) == 0
assert invoke(["data", "preview", "digits", "--partition", "IID", "--out", "preview.html"]) == 0
assert invoke(["data", "info", "new.csv"]) == 2
assert invoke(["run", "run.toml", "--set", "data.name=a9a"]) == 2
"""


def test_a_run_and_its_report_need_no_extra(tmp_path: Path) -> None:
    nowhere = {"FEDAX_DATA": str(tmp_path), "FEDAX_CACHE": str(tmp_path / "cache"), "FEDAX_OFFLINE": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=tmp_path, env={**os.environ, **nowhere}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "run/report.html").is_file()
    assert "error: a table needs pandas: pip install 'fedax[tables]'" in ran.stderr
    assert "a download needs pooch: pip install 'fedax[download]'" in ran.stderr


def test_all_brings_every_extra_for_users() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    developers = {"all", "test", "docs", "notebook", "bench", "cuda12"}
    assert extras["all"] == [f"fedax[{','.join(name for name in extras if name not in developers)}]"]


def test_an_index_of_packages_shows_no_link_that_leads_nowhere() -> None:
    description = runpy.run_path(str(ROOT / "setup.py"))["description"]
    readme = (ROOT / "README.md").read_text()
    shown = description(readme)
    assert not re.findall(r"\]\((?!https?://|#)", shown)
    assert "<!--" not in shown
    code = re.findall(r"```.*?```", readme, re.DOTALL)
    assert len(code) > 4
    assert all(block in shown for block in code)
    assert "Performance has the other" in shown
    absolute = description(readme, "https://example.org/files/")
    assert "![The report of the demo](https://example.org/files/docs/report.png)" in absolute
    assert "[docs](https://example.org/files/docs/index.md)" in absolute


def test_a_release_has_one_version_and_one_date_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == fedax.__version__
    released = re.search(r"^## \[(.+?)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = (ROOT / "CITATION.cff").read_text()
    assert released is not None
    assert released[1] == version
    assert f"\nversion: {version}\ndate-released: {released[2]}\n" in cited
