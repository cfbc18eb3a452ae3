"""Text that XML 1.0 cannot hold, written so that it comes back.

A model may call an operator anything: with control characters, carriage returns (which every XML
parser turns into line feeds) or lone surrogates (bytes of a file that were not UTF-8). Each such
character is written `_xHHHH_`, its code in four capital hex digits, as spreadsheets do; an
underscore in front of `xHHHH` is itself written `_x005F_`. All other text stays as it is. The same
text stands in every form of the database. Files say that they use this with a table
`whence_format`; in files of others nothing is taken for an escape.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile("_(?=x[0-9A-F]{4})|[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPED = re.compile("_x([0-9A-F]{4})_")


def escape(text: str) -> str:
    """The text in characters that XML 1.0 allows and no parser changes."""
    return _UNSAFE.sub(lambda found: f"_x{ord(found[0]):04X}_", text)


def unescape(text: str) -> str:
    """What `escape` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if "_x" in text else text
