"""Sentences of results as HTML: escaped, and what is between backticks as code."""

from __future__ import annotations

import re
from html import escape


def prose(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
