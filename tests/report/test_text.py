"""Clipping, escaping and signs, by hand and for any text."""

from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from rlanything_jax.report.text import clip, shown, signed


def test_clip_by_hand() -> None:
    assert clip("abcdefghi", 6) == "abcd […] hi"
    assert clip("abcdef", 6) == "abcdef"
    assert clip(None, 3) == ""


def test_signed_by_hand() -> None:
    assert [signed(v) for v in (0.5, -2, 0.001, None)] == ["+0.50", "−2.00", "0.00", ""]


@given(st.text(max_size=200), st.integers(3, 60))
def test_shown_text_is_inert_and_bounded(text: str, limit: int) -> None:
    html = shown(text, limit)
    assert not set(html) & set("<>\"'")
    assert len(html) <= 2 * limit + 5
    assert unescape(html) == text or "[…]" in html
