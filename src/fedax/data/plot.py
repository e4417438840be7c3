"""A picture of a federation: labels by client, sizes, and how much the clients differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedax.data.heterogeneity import Heterogeneity
from fedax.errors import FedaxError
from fedax.whole_files import write_whole

SHOWN = 400  # clients: more columns cannot be told apart


def shown(seen: Heterogeneity, most: int) -> list[int]:
    """Which clients a picture of `most` columns shows: all, or some at even distances.

    >>> from fedax.data import IID, load
    >>> from fedax.data.heterogeneity import heterogeneity
    >>> shown(heterogeneity(load("iris", partition=IID(9))), 3)
    [0, 4, 8]
    """
    clients = len(seen.names)
    chosen = np.unique(np.linspace(0, clients - 1, min(clients, most)).round().astype(int))
    return [int(i) for i in chosen]


def figure(seen: Heterogeneity) -> Any:
    """A plotly figure: the heat map of labels by client, as shares of the client's rows, above the sizes.

    >>> from fedax.data import load
    >>> from fedax.data.heterogeneity import heterogeneity
    >>> [trace.type for trace in figure(heterogeneity(load("iris"))).data]
    ['heatmap', 'bar']
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    columns = shown(seen, SHOWN)
    names = [seen.names[i] for i in columns]
    bars = go.Bar(x=names, y=seen.sizes[columns].tolist(), marker={"color": "#4c78a8"}, name="rows")
    if seen.label_counts is None:
        made = go.Figure(bars)
    else:
        made = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.04)
        share, counts = seen.shares[columns].T.tolist(), np.array(seen.label_counts)[columns].T.tolist()
        told = "client %{x}, label %{y}: %{text} rows, %{z:.1%}<extra></extra>"
        bar = {"title": "share of rows", "len": 0.7, "y": 0.65}
        heat = go.Heatmap(z=share, text=counts, x=names, hovertemplate=told, colorscale="Blues", colorbar=bar)
        made.add_trace(heat, row=1, col=1)
        made.add_trace(bars, row=2, col=1)
        made.update_yaxes(title_text="label", dtick=max(1, len(counts) // 20), row=1, col=1)
    made.update_xaxes(type="category", title_text="client")
    made.update_layout(template="plotly_white", height=520, showlegend=False, margin={"t": 30, "r": 20})
    return made


def save(seen: Heterogeneity, path: Path) -> None:
    """Write the picture as .png, whole or not at all; `fedax.report.preview` writes .html."""
    check_path(path)
    write_whole(path, _png(seen))


def check_path(path: Path) -> None:
    """Raise unless `save` can write the file.

    >>> check_path(Path("preview.html"))
    """
    if path.suffix not in (".html", ".png"):
        raise FedaxError(f"out is {path}: it must end in .html or .png")
    if not path.absolute().parent.is_dir():
        raise FedaxError(f"out is {path}: the directory {path.absolute().parent} does not exist")
    if path.suffix == ".png":
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise FedaxError(f"out is {path}: .png needs matplotlib, which is not installed; .html does not") from None


def _png(seen: Heterogeneity) -> bytes:
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = shown(seen, SHOWN)
    drawn = Figure(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(drawn)
    if seen.label_counts is None:
        sizes = drawn.subplots()
    else:
        heat, sizes = drawn.subplots(2, 1, sharex=True, height_ratios=[0.7, 0.3])
        image = heat.imshow(seen.shares[columns].T, aspect="auto", cmap="Blues", origin="lower")
        drawn.colorbar(image, ax=heat, label="share of rows")
        heat.set_ylabel("label")
    sizes.bar(np.arange(len(columns)), seen.sizes[columns], width=1.0)
    sizes.set_xlabel("client")
    sizes.set_ylabel("rows")
    drawn.suptitle("\n".join([seen.title, *seen.sentences(), *_left_out(seen)]), fontsize=9)
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _left_out(seen: Heterogeneity) -> list[str]:
    count = len(shown(seen, SHOWN))
    return [f"the picture shows {count} of the {len(seen.names):,} clients"] if count < len(seen.names) else []
