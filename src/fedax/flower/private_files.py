"""Files of a site that nobody else on its machine may read: 0600, in directories that are 0700."""

from __future__ import annotations

from pathlib import Path

from fedax.whole_files import write_whole


def make_private(folder: Path) -> None:
    """Make a directory, and those above it that are missing, for their owner alone.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "states" / "run"
    >>> make_private(folder)
    >>> [oct(path.stat().st_mode & 0o777) for path in (folder.parent, folder)]
    ['0o700', '0o700']
    """
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, for its owner alone."""
    write_whole(path, content, 0o600)


def close(folder: Path) -> None:
    """Leave a directory and all that is in it to its owner alone."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
