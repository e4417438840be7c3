"""Compiled programs are kept between launches, where that was asked for and can be done."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOW = "import fedax.vectors, jax; print(jax.config.jax_compilation_cache_dir)"


def launch(code=SHOW, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("FEDAX_COMPILE_CACHE", "JAX_COMPILATION_CACHE_DIR")}
    return subprocess.run(
        [sys.executable, "-c", code], env={**kept, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FEDAX_COMPILE_CACHE": "0"}, "None"),
        ({"FEDAX_COMPILE_CACHE": "1", "JAX_COMPILATION_CACHE_DIR": "/somewhere/else"}, "/somewhere/else"),
    ],
    ids=["off", "jax's own"],
)
def test_the_cache_is_left_alone(tmp_path, environment, expected):
    assert launch(FEDAX_CACHE=str(tmp_path), **environment).stdout.strip() == expected


def test_programs_are_kept_in_the_cache(tmp_path):
    code = "import fedax.vectors, jax, jax.numpy as jnp; jax.jit(lambda x: x @ x)(jnp.ones((8, 8)))"
    found = launch(code, FEDAX_CACHE=str(tmp_path), FEDAX_COMPILE_CACHE="1")
    assert found.stderr == ""
    assert any((tmp_path / "programs").rglob("*"))


def test_a_wrong_wish_is_named(tmp_path):
    found = launch(FEDAX_CACHE=str(tmp_path), FEDAX_COMPILE_CACHE="yes")
    assert "FEDAX_COMPILE_CACHE must be 0 or 1, not 'yes'" in found.stderr
