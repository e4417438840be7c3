"""The words of a page, each explained once: those that its tables use."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedax.report.columns import parse
from fedax.report.honest import constant_row
from fedax.report.summary import Group

#: Words with what they mean, in the order in which a page uses them.
ALWAYS = {
    "Shared model": "the one model that the server keeps and all clients get.",
    "Gradients": "how many gradients of single rows clients compute, all rounds and clients together: a "
    "minibatch of 20 rows counts 20.",
    "Floats up, floats down": "how many numbers clients send to the server, and the server to clients.",
}
SEEDS = {"±": "the half-width of the 95 % confidence interval of the mean over seeds (Student's t)."}
WORST = {"Worst tenth": "the mean over the tenth of the clients that fare worst."}
CONSTANT = {
    "Majority class, mean": "who predicts the same for every row, from the training rows alone; for personal models, "
    "each client's own constant."
}
OWN = {"Personal models": "a model of each client's own, which the method makes besides the shared one."}
PERSONAL = {
    "Localised": "the shared model after a few local steps on the client's training rows.",
    "Local": "a model that the client trains alone, without federation.",
    "Helped, harmed": "the share of the clients whose personal model is better, and worse, than the other model.",
    "p": "Wilcoxon's signed-rank test over clients, the largest over seeds: below 0.05 the two models differ.",
    "Weighted mean": "the mean over clients by their test rows; elsewhere every client counts the same.",
    "Deviation": "the standard deviation between clients.",
}
BOLD = {"Bold": "the best value of a column among methods whose runs all finished. Seconds are not judged."}


def glossary(groups: Sequence[Group], *, personal: bool) -> str:
    """The words that the tables of these runs use, folded away. personal: whether clients are compared one by one."""
    keys = {key for group in groups for run in group.runs for row in run.rows[-1:] for key in row}
    own = any(metric.personal for key in keys if (metric := parse(key)))
    words = dict(ALWAYS)
    words |= OWN if own else {}
    words |= SEEDS if any(len(group.runs) > 1 for group in groups) else {}
    words |= WORST if any(key.endswith("_worst") for key in keys) else {}
    words |= CONSTANT if constant_row(groups) else {}
    words |= PERSONAL if personal else {}
    words |= BOLD if len(groups) > 1 else {}
    lines = "".join(f"<div><dt>{escape(word)}</dt><dd>{escape(meaning)}</dd></div>" for word, meaning in words.items())
    return f'<details class="glossary"><summary>What the words mean</summary><dl>{lines}</dl></details>'
