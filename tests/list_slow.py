"""Write slow_tests.txt, the tests that `make test-fast` leaves out, from what a run of all tests says of their seconds.

python -m pytest -n 2 --durations 0 --durations-min 0.2 > seconds.txt; python tests/list_slow.py seconds.txt
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_name("slow_tests.txt")
LIMIT = 0.4  # seconds of a function with all its parameters, as a share of a run of 1,000 seconds
LINE = re.compile(r"([\d.]+)s (?:call|setup|teardown)\s+(\S+?::[^\[\s]+)")


def main(file: str) -> None:
    """Add up each function's seconds, and list the longest."""
    seconds: Counter[str] = Counter()
    for took, name in LINE.findall(Path(file).read_text()):
        seconds[name] += float(took)
    limit = LIMIT * sum(seconds.values()) / 1000
    LIST.write_text("".join(f"{name}\n" for name in sorted(seconds) if seconds[name] > limit))


if __name__ == "__main__":
    main(sys.argv[1])
