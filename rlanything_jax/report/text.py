"""Text of a run made short and safe for HTML."""

from html import escape
from typing import Any


def clip(text: Any, limit: int) -> str:
    """`text` as a string of at most `limit` characters, its middle left out where it is longer."""
    text = "" if text is None else str(text)
    if len(text) <= limit:
        return text
    head = 2 * limit // 3
    return f"{text[:head]} […] {text[head - limit :]}"


def shown(text: Any, limit: int) -> str:
    """`text` clipped and escaped; one that is mostly markup is clipped further, to bound the page's size."""
    escaped = escape(clip(text, limit))
    return escaped if len(escaped) <= 2 * limit + 5 else escape(clip(text, limit // 3))


def signed(value: Any) -> str:
    """A number with its sign and two decimals, '' for anything else."""
    if not isinstance(value, int | float):
        return ""
    return f"{value:+.2f}".replace("-", "−") if round(value, 2) else "0.00"
