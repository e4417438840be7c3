"""Reports on runs: it reads run directories, the table of a sweep beside them, and nothing else.

read(folder)            one run, as far as it got
find(folder)            the run directories at a place
table(run_folders)      one row per algorithm: mean and spread over seeds
protocol(groups)        personal models beside shared ones, client by client, over seeds
held_equal(runs)        what every method of a comparison had the same of
tuned(folder)           how its methods were tuned
write(folder, runs)     folder/report.html, one page that opens offline
combine(path, places)   one page on the runs of several directories
"""

from __future__ import annotations

from fedax.report.columns import text
from fedax.report.fairness import held_equal, tuned
from fedax.report.html import combine, write
from fedax.report.personal_table import protocol
from fedax.report.summary import Spread, columns, groups, read_all, table
from fedax.runs.reading import RecordedRun, find, read

__all__ = [
    "RecordedRun",
    "Spread",
    "columns",
    "combine",
    "find",
    "groups",
    "held_equal",
    "protocol",
    "read",
    "read_all",
    "table",
    "text",
    "tuned",
    "write",
]
