"""What makes a page small: text deflated, and written in 85 signs that a script element may hold.

Plotly's script is 4.8 MB; packed, a page with it is 1.8 MB. `unpack.js` is the other side.
"""

from __future__ import annotations

import functools
import zlib

import numpy as np

# No "<" and no "/": nothing that is packed can close the element that holds it, or open a comment in it.
SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~"


def pack(text: str) -> str:
    """A text as five signs for every four bytes, the number of bytes before them.

    >>> pack("")
    '8 c$@,O00001'
    >>> unpack(pack("x' < 1")) == "x' < 1"
    True
    """
    packed = zlib.compress(text.encode(), 6)
    words = np.frombuffer(packed + bytes(-len(packed) % 4), ">u4").astype(np.int64)
    digits = words[:, None] // 85 ** np.arange(4, -1, -1) % 85
    signs = np.frombuffer(SIGNS.encode(), np.uint8)[digits]
    return f"{len(packed)} {signs.tobytes().decode()}"


def unpack(packed: str) -> str:
    """What was packed, as the page's script unpacks it."""
    length, _, signs = packed.partition(" ")
    place = np.zeros(128, np.int64)
    place[np.frombuffer(SIGNS.encode(), np.uint8)] = np.arange(85)
    digits = place[np.frombuffer(signs.encode(), np.uint8)].reshape(-1, 5)
    words = (digits * 85 ** np.arange(4, -1, -1)).sum(axis=1).astype(">u4")
    return zlib.decompress(words.tobytes()[: int(length)]).decode()


@functools.cache
def plotly() -> str:
    """Plotly's script, packed once: a comparison has many pages."""
    from plotly.offline import get_plotlyjs

    return pack(get_plotlyjs())
