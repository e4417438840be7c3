"""The generated reference leaves nothing out: names, fields, commands, and the formulas of each method."""

from __future__ import annotations

import doctest
import inspect
import re
import shlex
import sys
from pathlib import Path

import pytest

import fedax
from fedax.algorithms import ALGORITHMS
from fedax.experiments.schema import Experiment

GENERATORS = Path(__file__).parent.parent / "docs/generators"
sys.path.insert(0, str(GENERATORS))

import commands  # noqa: E402
import docstrings  # noqa: E402
import experiment_file  # noqa: E402
import formulas  # noqa: E402
import names  # noqa: E402
import reference  # noqa: E402
import saved_numbers  # noqa: E402


def test_every_public_name_has_an_entry():
    every = "\n".join(reference.pages().values())
    for name in fedax.__dir__():
        value = getattr(fedax, name)
        if inspect.ismodule(value):
            assert value.__name__ in (*reference.ROOMS, "fedax.algorithms", "fedax.evaluation"), name
        elif name not in ALGORITHMS:  # which have cards
            assert re.search(rf"^::: fedax[\w.]*\.{name}$", every, re.MULTILINE), name


def tables(kind):
    yield kind
    for field in kind.model_fields.values():
        for nested in experiment_file._models(field.annotation):
            yield from tables(nested)


def test_every_field_of_an_experiment_has_a_type_and_a_meaning():
    page = experiment_file.page()
    for kind in tables(Experiment):
        for name, typed, _, meaning in experiment_file.fields(kind):
            nested = list(experiment_file._models(kind.model_fields[name].annotation))
            assert f"| `{name}` |" in page
            assert meaning or nested, f"{kind.__name__}.{name}"
            assert typed, name


def test_every_command_and_option_is_on_the_page_and_its_examples_parse():
    page = commands.page()
    for name, command in commands.commands():
        assert name == "fedax" or re.search(rf"^#+ {name}$", page, re.MULTILINE), name
        for option in command.params:
            if option.opts[0].startswith("--") and option.name not in ("debug", "help"):
                assert option.opts[0] in page, (name, option.opts)
        if name == "fedax":
            continue
        for line in commands.examples(command):
            words = shlex.split(line, comments=True)
            assert words[: name.count(" ") + 1] == name.split(), line
            known = {one for option in command.params for one in (*option.opts, *option.secondary_opts)}
            assert {word.split("=")[0] for word in words if word.startswith("--")} <= known, line


@pytest.mark.parametrize("name", ALGORITHMS)
def test_formulas_are_typeset(name):
    body = inspect.cleandoc(sys.modules[ALGORITHMS[name].__module__].__doc__).partition("\n\n")[2]
    shown = formulas.typeset(body)
    found = re.findall(r'<span class="arithmatex">\\\((.*?)\\\)</span>', shown)
    assert found
    for formula in found:
        assert formula.count("{") == formula.count("}"), formula
        assert "&lt;-" not in formula, formula
        bare = re.sub(r"\\text\{[^}]*\}|\\\w+", "", formula)
        assert not re.search(r"\b(?:alpha|lam|grad|sum|mean)(?![\w}])", bare), formula


def test_what_can_be_named_is_listed():
    page = names.page()
    for name in ("Dirichlet", "L1", "cross_entropy", "trimmed_mean", "inverse-time"):
        assert f"| `{name}` |" in page


@pytest.mark.parametrize("module", [docstrings, experiment_file, formulas, saved_numbers], ids=lambda m: m.__name__)
def test_the_generators_examples(module):
    assert doctest.testmod(module).failed == 0
