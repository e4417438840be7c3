"""`fedax data preview`, its numbers against closed forms and differences of the loss, and its pictures."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fedax.cli.app import invoke
from fedax.cli.preview import chart, show
from fedax.data import IID, ByLabel, Federation, Homogeneous, load
from fedax.data.heterogeneity import Heterogeneity, heterogeneity, total_variation
from fedax.data.plot import SHOWN, figure, save, shown
from fedax.errors import FedaxError
from fedax.report.preview import preview, write_preview


def federation(counts, features=3, seed=0):
    """Clients with these numbers of rows of each label."""
    rng = np.random.default_rng(seed)
    clients = [np.repeat(np.arange(len(row)), row) for row in counts]
    return Federation.from_clients([{"x": rng.normal(size=(len(y), features)), "y": y} for y in clients])


# Numbers


@pytest.mark.parametrize("clients", [2, 5, 10])
def test_total_variation_of_clients_with_labels_of_their_own(clients):
    assert total_variation(3 * np.eye(clients)) == pytest.approx(1 - 1 / clients)
    assert total_variation(np.outer(np.arange(1, clients + 1), [1, 2, 3])) == pytest.approx(0)


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=6))
def test_total_variation_is_a_mean_of_distances(counts):
    counts = np.add(counts, [1, 0, 0, 0])
    value = total_variation(counts)
    assert 0 <= value <= 1 - 1 / len(counts) + 1e-12
    assert total_variation(counts * np.arange(1, len(counts) + 1)[:, None]) == pytest.approx(value)
    assert total_variation(counts[:, ::-1]) == pytest.approx(value)


def test_zeta_is_that_of_the_losss_differences():
    made = federation([[5, 1, 2], [1, 1, 1], [0, 9, 4], [2, 0, 0]])

    def loss(w, x, y):
        scores = x @ w[:-1] + w[-1]
        return np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y])

    def gradient(x, y, step=1e-4):
        ways = step * np.eye(12).reshape(12, 4, 3)
        return np.array([(loss(way, x, y) - loss(-way, x, y)) / (2 * step) for way in ways])

    gradients = np.array([gradient(**made.client(i)) for i in range(4)])
    expected = np.sqrt(((gradients - gradients.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert heterogeneity(made).zeta == pytest.approx(expected, rel=1e-6)


def test_clients_that_share_their_rows_do_not_differ():
    seen = heterogeneity(load("digits", partition=Homogeneous(500), split=None))
    assert seen.total_variation == pytest.approx(0, abs=1e-12)
    assert seen.zeta == pytest.approx(0, abs=1e-9)


def test_bytes_count_from_zero_to_one():
    y = np.arange(20) % 2
    x = np.random.default_rng(0).integers(0, 256, (20, 2, 2)).astype(np.uint8)
    bytes_, floats = (
        heterogeneity(Federation.from_clients([{"x": a[:8], "y": y[:8]}, {"x": a[8:], "y": y[8:]}])).zeta
        for a in (x, x / 255)
    )
    assert bytes_ == pytest.approx(floats, rel=1e-6)


def test_a_regression_has_sizes_alone_and_labels_need_no_features():
    seen = heterogeneity(load("diabetes", partition=IID(4)))
    assert (seen.label_counts, seen.total_variation, seen.zeta) == (None, None, None)
    assert seen.sizes.sum() == 442
    assert seen.sentences()[1] == "no labels: sizes only"
    assert heterogeneity(Federation.from_clients([{"y": [0, 1]}])).zeta is None


def test_what_is_seen_survives_json():
    seen = heterogeneity(load("wine", partition=ByLabel(4, 2)))
    assert Heterogeneity.read(json.loads(json.dumps(seen.json()))) == seen


# The map


def test_the_map_is_dark_where_the_rows_are_and_can_be_read_without_colours():
    seen = heterogeneity(federation([[7, 0, 1], [0, 6, 6]]))
    lines = [line.plain for line in chart(seen, [0, 1])]
    assert lines == ["label 0  █·", "label 1  ·▒", "label 2  ░▒", "sizes    ▆█"]
    assert [line.plain for line in chart(seen, [0, 1], ascii_only=True)][:3] == [
        "label 0  #.",
        "label 1  .+",
        "label 2  :+",
    ]


def test_many_clients_and_labels_fit_a_terminal():
    seen = heterogeneity(federation([[1] * 50] * 300))
    console = Console(width=80, record=True, file=io.StringIO())
    show(seen, console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "the map shows 68 of the 300 clients" in text
    assert "the map shows 40 of the 50 labels" in text
    assert shown(seen, 68)[0] == 0
    assert shown(seen, 68)[-1] == 299


# Pictures


def test_the_figure_holds_every_count():
    seen = heterogeneity(federation([[6, 0, 2], [0, 3, 9]]))
    heat, bars = figure(seen).data
    assert np.array(heat.text).tolist() == [[6, 0], [0, 3], [2, 9]]
    assert np.array(heat.z).tolist() == [[0.75, 0], [0, 0.25], [0.25, 0.75]]
    assert list(bars.y) == [8, 12]
    (only,) = figure(heterogeneity(load("diabetes"))).data
    assert only.type == "bar"
    assert len(figure(heterogeneity(federation([[1, 1]] * 500))).data[1].y) == SHOWN


def test_titles_are_text_not_markup():
    seen = Heterogeneity(["<b>"], [[1, 0, 0]], [[1]], 0.0, None, "<script>alert(1)</script>")
    assert "<script>alert" not in preview(seen)


def test_files_are_whole(tmp_path):
    seen = heterogeneity(load("digits", partition=ByLabel(5, 2)))
    write_preview(seen, tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert text.startswith("<!doctype html>")
    assert seen.sentences()[0] in text
    assert not re.search(r"https?:|<link|\ssrc=", text)
    assert len(text) < 2e6
    pytest.importorskip("matplotlib")
    save(seen, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    save(heterogeneity(load("diabetes")), tmp_path / "q.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.html", "p.png", "q.png"]


def test_png_without_matplotlib_points_to_html(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FedaxError, match=r"\.png needs matplotlib, which is not installed; \.html does not"):
        save(heterogeneity(load("iris")), tmp_path / "p.png")


# The command


def test_the_command(capsys, tmp_path):
    out = tmp_path / "digits.html"
    words = "data preview digits --partition dirichlet --alpha 0.3 --clients 20 --min-rows 5 --seed 2"
    assert invoke([*words.split(), "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "digits, Dirichlet(clients=20, alpha=0.3, min_rows=5)" in text
    assert len(re.findall(r"^label \d ", text, re.MULTILINE)) == 10
    assert "20 clients, 1,797 rows" in text
    assert "gradient diversity zeta" in text
    assert "logistic regression at zero weights" in text
    assert out.stat().st_size > 1000


@pytest.mark.parametrize(
    "words", ["diabetes --clients 3", "breast_cancer --partition shards", "iris --partition bylabel"]
)
def test_two_classes_and_none(words, capsys):
    assert invoke(["data", "preview", *words.split()]) == 0
    assert "clients, " in capsys.readouterr().out


def test_data_that_come_divided(capsys):
    words = ["--set", "preset=thesis-III", "--set", "dimension=16", "--set", "clients=4"]
    assert invoke(["data", "preview", "lasso", *words]) == 0
    assert "4 clients, 640 rows: 160 a client" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("digitz", "unknown dataset 'digitz': did you mean 'digits'?"),
        ("digits --partition dirichlett", "unknown partition 'dirichlett': did you mean 'Dirichlet'?"),
        ("digits --partition dirichlet", "Dirichlet is missing alpha"),
        ("digits --partition dirichlet --alpha 0", "alpha is 0.0: it must be a finite number above 0"),
        ("digits --partition dirichlet --alpha nan", "alpha is nan: it must be a finite number above 0"),
        ("digits --alpha 1", "unknown IID argument 'alpha'"),
        ("iris --clients 151", "clients is 151: it must be at most the number of rows, 150"),
        ("iris --partition bycolumn --column writer", "unknown column 'writer'"),
        ("diabetes --partition bylabel", "divides rows by their labels: 'y' has dtype float32"),
        ("iris --out preview.pdf", "out is preview.pdf: it must end in .html or .png"),
        ("iris --out nowhere/preview.html", "does not exist"),
        ("lasso --clients 3", "--clients must be left out: lasso comes divided among clients"),
        ("lasso --set preset", "--set preset: it must be OPTION=VALUE"),
    ],
)
def test_bad_input_gets_one_line(words, sentence, capsys):
    assert invoke(["data", "preview", *words.split()]) == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
