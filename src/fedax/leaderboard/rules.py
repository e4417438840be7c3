"""The rules of the leaderboard. They were written down before any of its runs, and the page prints them.

The constants below are what the code does; `RULES` says the same in words.
"""

from __future__ import annotations

from typing import Literal

Budget = Literal["gradients", "floats"]

BUDGETS: tuple[Budget, ...] = ("gradients", "floats")
TRIALS = 9  #: settings of each method
PARTS = 24  #: a run is evaluated after each of 24 equal parts, and its length is a whole number of them
OVER = 0.01  #: the share by which a budget may be exceeded, so that a few floats do not cost a whole part
MOST = 2  #: a cheaper method may have at most twice the yardstick's rounds
TUNING_SEED = 1000  #: no seed that is reported
SEEDS = {"quick": (0, 1, 2), "full": (0, 1, 2, 3, 4)}
LEVEL = 0.05

RULES = f"""\
- **Tasks.** A task fixes FedAvg's rounds and a rate around which all ranges lie. Both were set by runs of FedAvg alone
  (of training alone in the personal track), before any other method was run: enough rounds that its score no longer
  climbs much (fewer for the convolutional networks, whose runs are dear), and the rate near which its score on
  validation rows is best. One task was changed after a run: `hospitals` has five times the rows, because 366 test rows
  were too few. FedPD is not on the board: it is FedADMM as long as no round skips.
- **Budget.** On the first board every method may take as many gradients of single rows
  as FedAvg does in these rounds, on the second as many floats sent up and down; it has the rounds that this pays for,
  rounded down to a {PARTS}th of FedAvg's once {OVER:.0%} is added, at most {MOST} times FedAvg's. A method that sends
  nothing has FedAvg's rounds on the second board. A method whose budget pays for less than a {PARTS}th is left out,
  and the page says so.
- **Tuning.** Every method has {TRIALS} settings, however many numbers it has. They fill the ranges that its own file
  declares (`tune=`), around the task's rate, by a fixed sequence that no result changes. Each runs with one seed that
  is not reported. The setting with the best score on validation rows at the end of the budget is taken, for each
  board by itself. Test rows are not looked at before that.
- **Score.** The chosen setting runs with {len(SEEDS["full"])} seeds ({len(SEEDS["quick"])} in the quick suite): other
  first models, cohorts and minibatches, on the same division of the data. The score is the task's metric on test rows
  at the end, never the best on the way: of the shared model, or in the personal track the clients' own models'. The
  seeds change neither the division nor the test rows, so an interval says what another run on these data would give,
  not what other data would.
- **Ties.** Two methods are compared seed by seed. One is ahead if Student's 95 % interval of the mean difference
  leaves out 0; else they are tied. A method that diverges with some seed is behind all that do not. Of comparisons
  between equally good methods one in twenty comes out ahead or behind by chance; the mean ranks below allow for that.
- **Ranks.** A method's rank on a task is 1, plus 1 for each method that is ahead of it, plus 1/2 for each that is
  tied with it. A win is a task on which nobody is ahead of it. The mean rank is over the tasks on which all methods
  of the track were run.
- **Critical difference.** Friedman's test (level {LEVEL}) on these ranks, then Nemenyi's: mean ranks that differ by
  less than q sqrt(k (k + 1) / (6 N)) are within noise. Where Friedman's test does not reject, no difference of mean
  ranks counts. Tasks of one track share data, so N tasks say less than N independent ones would.
- **To a target.** The target is what the yardstick (FedAvg, or training alone in the personal track) scores at its
  end on the first board, less one point. Time is CPU time of all cores together, which a busy machine changes little.
- **A point** is one of a hundred of an accuracy; of a loss, a hundredth of the way from the first model's loss to the
  yardstick's at its end.
- **Sensitivity** is the share of a method's {TRIALS} settings that are within one point of its best, on validation
  rows.
- **Diverged** counts those of its settings, and of its reported runs, that ended without a finite score.
"""
