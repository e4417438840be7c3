"""The version of a method: a hash of its own file's code, whatever the commit, the comments and the formatting."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from typing import Any

from fedax.algorithms import Algorithm


def source_hash(method: Any) -> str:
    """The hash of the code of the modules that define a method and what it is made from, but for the contract.

    >>> import fedax
    >>> source_hash(fedax.FedAvg(lr=0.1)) == source_hash(fedax.FedAvg(lr=0.5))
    True
    """
    contract = {cls.__module__ for cls in Algorithm.__mro__}  # shared by all: a change there is not a method's
    modules = {cls.__module__ for cls in type(method).__mro__} - contract
    base = getattr(method, "base", None)
    if base is not None:
        modules.add(type(base).__module__)
    digest = hashlib.sha256()
    for name in sorted(modules):
        digest.update(_code(sys.modules[name]).encode())
    return digest.hexdigest()[:16]


def _code(module: Any) -> str:
    """A module's code without docstrings and comments; nothing where there is no file."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return ""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body and _is_text(body[0]):
            node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
