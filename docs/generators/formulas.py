"""The formulas of a method's file, as KaTeX: what is code's plain text there is typeset here."""

from __future__ import annotations

import html
import re

from docstrings import markdown

SYMBOLS = {
    "lam": r"\lambda",
    "grad": r"\nabla",
    "sum": r"\sum",
    "prox": r"\operatorname{prox}",
    "mean": r"\operatorname{mean}",
    "median": r"\operatorname{median}",
    "clip": r"\operatorname{clip}",
    "sign": r"\operatorname{sign}",
    "argmin": r"\operatorname*{arg\,min}",
    "argmax": r"\operatorname*{arg\,max}",
    "sqrt": r"\sqrt",
    "max": r"\max",
    "min": r"\min",
    "exp": r"\exp",
    "log": r"\log",
    "dom": r"\operatorname{dom}",
    "vbar": r"\bar v",
    "lr": r"\mathit{lr}\,",
    **{name: "\\" + name for name in ("alpha", "beta", "gamma", "delta", "epsilon", "eta", "theta", "mu", "nu", "rho")},
    "Delta": r"\Delta",
    **{name: "\\" + name for name in ("psi", "sigma", "tau", "phi", "xi", "zeta", "pi")},
}
SIGNS = {
    "<-": r"\leftarrow ",
    "->": r"\to ",
    "<=": r"\le ",
    ">=": r"\ge ",
    "||": r"\|",
    "...": r"\ldots ",
    "~": r"\approx ",
    "*": r"^{*}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
}
TOKEN = re.compile(
    r"<-|->|<=|>=|\|\||\.\.\.|[a-z]{2,}'s\b|[A-Za-z]+\d?(?:_[A-Za-z0-9]+)*~?'*(?:\+(?=[ ,;)]|$))?|\d+(?:\.\d+)?|\s+|."
)
FORMULA = re.compile(r"<-| = |argmin|min over|sum_|(?<=\w)_i\b|\|\||>=| ~ ")
ENTRY = re.compile(r"\s{2,}")


def typeset(text: str) -> str:
    """The lines below a method file's title: formulas as a table of who, what and where; words as words."""
    parts = re.split(r"\n[ \t]*\n", text.strip("\n"))
    return "\n\n".join(_rows(part) if _is_formulas(part) else markdown(part) for part in parts)


def _is_formulas(part: str) -> bool:
    lines = part.splitlines()
    return lines[0].startswith("Objective") or all(line.startswith("  ") for line in lines)


def _rows(part: str) -> str:
    rows = []
    for line in part.splitlines():
        line = re.sub(r"(\bof|\bas|\bat|\btimes|;|,)\s{2,3}(?=\S)", r"\1 ", re.sub(r"(\w)\s{2,}<-", r"\1 <-", line))
        line = re.sub(r"(\w:) (\w+ <-)", r"\1  \2", line)
        cells = [cell for cell in ENTRY.split(line.strip()) if cell]
        at = next((i for i, cell in enumerate(cells) if FORMULA.search(cell) and not cell.endswith(":")), None)
        if at is None and len(cells) == 1 and rows and not cells[0].endswith(":"):
            at = 0 if FORMULA.search(cells[0]) else None
        if at is None:
            who, what, where = (cells[0], "", cells[-1]) if len(cells) > 1 else (cells[0], "", "")
            if line.startswith(" " * 30):  # the paper, above the column of its lines
                who, what, where = "", "", cells[0]
        else:
            who, what, where = " ".join(cells[:at]), cells[at], " ".join(cells[at + 1 :])
        formula = f'<span class="arithmatex">\\({html.escape(latex(what), quote=False)}\\)</span>' if what else ""
        rows.append(f"<tr><td>{_text(who)}</td><td>{formula}</td><td>{_text(where)}</td></tr>")
    return '<table class="formulas"><tbody>\n' + "\n".join(rows) + "\n</tbody></table>"


def _text(words: str) -> str:
    return html.escape(words, quote=False)


def latex(line: str) -> str:
    """A formula of a docstring as LaTeX.

    >>> latex("y <- y - lr (g_i(y) - c_i + c)")
    'y \\\\leftarrow  y - \\\\mathit{lr}\\\\, (g_{i}(y) - c_{i} + c)'
    >>> latex("x <- x + server_lr mean(u_i) / (K lr)")
    'x \\\\leftarrow  x + \\\\mathit{server\\\\_lr}\\\\;\\\\operatorname{mean}(u_{i}) / (K\\\\;\\\\mathit{lr}\\\\,)'
    >>> latex("min over x of  (1/n) sum_i f_i(x)")
    '\\\\min_{x}\\\\; \\\\tfrac{1}{n} \\\\sum_{i} f_{i}(x)'
    """
    line = re.sub(r"\b(arg)?min over ([\w, ]+?) of\s+", lambda m: f"\x00{'A' if m[1] else 'M'}{m[2]}\x01", line)
    pieces: list[tuple[str, str]] = []  # ("math" or "text", what)
    held: list[str] = []
    for piece in re.split(r"(\x00[^\x01]*\x01)", line):
        if piece.startswith("\x00"):
            sign = r"\operatorname*{arg\,min}" if piece[1] == "A" else r"\min"
            pieces.append(("math", f"{sign}_{{{''.join(m for _, m in _tokens(piece[2:-1]))}}}\\; "))
        else:
            pieces += _tokens(piece)
    out = ""
    for i, (kind, what) in enumerate(pieces):
        if kind == "text" or (what.isspace() and held and _text_follows(pieces, i)):
            held.append(what)
            continue
        if held:
            out += rf"\text{{ {''.join(held).strip()} }}"
            held = []
        out += what
    if held:
        out += rf"\text{{ {''.join(held).strip()} }}"
    out = re.sub(r"\((\w+|\\\w+)/(\w+|\\\w+)\)", r"\\tfrac{\1}{\2}", out)
    out = re.sub(r"(?<=[\w)}])(?<!arrow)\s+(?=\\mathit)", r"\\;", out)  # K lr is a product of two numbers
    out = re.sub(r"(\\mathit\{[^}]*\})\\,\s*(?=[\w\\])(?!\\[a-z]*arrow|\\[lg]e )", r"\1\\;", out)
    out = re.sub(r"(?<=\w) \}(?=\s*[,.;)])", "}", out)  # a comma follows a word at once
    out = _roots(out)
    out = re.sub(r"<(?=[A-Za-z\\(])(.+?)(?<=[\w)}])>", r"\\langle \1\\rangle ", out)
    return re.sub(r"\^(\w+|\\\w+)", r"^{\1}", out).strip()


def _text_follows(pieces: list[tuple[str, str]], i: int) -> bool:
    return i + 1 < len(pieces) and pieces[i + 1][0] == "text"


def _tokens(piece: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    raw = TOKEN.findall(piece.replace("`", ""))
    for i, token in enumerate(raw):
        if token == "mean" and (i + 1 == len(raw) or raw[i + 1] != "("):
            found.append(("text", token))
        elif token[0].isalpha():
            words = [t for t in raw[max(0, i - 2) : i + 3] if t[0].isalpha() and t is not token]
            article = token in ("a", "I", "A") and any(_is_word(t) for t in words) and _spaced(raw, i)
            found.append(
                ("text", token.replace("_", r"\_")) if _is_word(token) or article else ("math", _symbol(token))
            )
        else:
            found.append(("math", SIGNS.get(token, " " if token.isspace() else token)))
    return found


def _spaced(raw: list[str], i: int) -> bool:
    """Whether a single letter stands between words, without a sign beside it."""
    beside = [raw[j] for j in (i - 2, i + 2) if 0 <= j < len(raw)]
    return all(_is_word(t) for t in beside if t[0].isalpha()) and not any(t in ("<-", "=", "+", "-") for t in beside)


def _is_word(token: str) -> bool:
    if token.endswith("'s"):
        return True
    base = token.rstrip("'+~").partition("_")[0].rstrip("0123456789")
    hat = len(base) == 4 and base.endswith("hat") and base not in ("that", "what")
    return not (base in SYMBOLS or len(base) == 1 or hat or "_" in token)


def _symbol(token: str) -> str:
    plus = "^{+}" if token.endswith("+") else ""
    bare = token.rstrip("+")
    primes = bare[len(bare.rstrip("'")) :]
    base, _, sub = bare.rstrip("'~").partition("_")
    if base[-1:].isdigit():
        base, sub = base[:-1], base[-1]
    if base not in SYMBOLS and len(base) > 2 and not base.endswith("hat"):
        return r"\mathit{" + bare.replace("_", r"\_") + r"}\,"
    sign = SYMBOLS.get(base, base)
    if bare.endswith("~"):
        sign = rf"\tilde {base}"
    elif base.endswith("hat"):
        sign = rf"\hat {base[0]}"
    below = rf"_{{{SYMBOLS.get(sub, sub)}}}" if sub else ""
    gap = " " if sign.startswith("\\") and not below and sign[-1].isalpha() else ""
    return f"{sign}{below}{primes}{plus}{gap if not plus else ''}"


def _roots(text: str) -> str:
    """sqrt( ... ) with its brackets as a root's."""
    at = text.find(r"\sqrt")
    while at >= 0:
        begin = text.find("(", at)
        if begin < 0 or text[at + 5 : begin].strip():
            break
        depth, end = 0, begin
        for end in range(begin, len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                break
        text = text[: at + 5] + "{" + text[begin + 1 : end] + "}" + text[end + 1 :]
        at = text.find(r"\sqrt", at + 5)
    return text
