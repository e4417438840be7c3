"""The package's description for an index of packages: README.md without its links to other files of the repository.

Everything else about the package is in pyproject.toml.
"""

import re
from pathlib import Path

#: Where the repository's files can be read, such as "https://example.org/fedax/blob/v0.2.0/"; nowhere public so far.
FILES = ""


def description(readme: str, files: str = FILES) -> str:
    """README's text with links below `files`; without an address links become their words, and pictures go."""
    text = re.sub(r"<!--.*?-->\n?", "", readme, flags=re.DOTALL)
    link = r"\[([^\[\]]*)\]\((?!https?://|#)([^)]*)\)"
    if files:
        return re.sub(link, rf"[\1]({files}\2)", text)
    return re.sub(link, r"\1", re.sub("!" + link + r"\n*", "", text))


if __name__ == "__main__":
    from setuptools import setup

    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    setup(long_description=description(readme), long_description_content_type="text/markdown")
