"""Every docstring becomes Markdown before mkdocstrings shows it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

from docstrings import markdown


class Docstrings(griffe.Extension):
    """The extension that mkdocs.yml names."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
