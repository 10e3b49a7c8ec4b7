"""What counts as a verdict: nothing but a rationale and one clear statement behind it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything_jax.reward.verdicts import format_verdict, parse_boxed, parse_words


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("brings the goal closer Verdict: +1", 1),
        ("nothing happened Verdict: -1", -1),
        ("x Verdict: +1", 1),
        ("a verdict: of sorts Verdict: -1", -1),
        ("Verdict: +1", 0),  # no rationale
        (" Verdict: +1", 0),
        ("  Verdict: +1", 0),
        (" nothing Verdict: -1", 0),
        ("nothing happened", 0),
        ("", 0),
        ("nothing Verdict: 1", 0),
        ("nothing Verdict: 0", 0),
        ("nothing Verdict: +2", 0),
        ("nothing Verdict: +10", 0),
        ("nothing Verdict: +1.", 0),
        ("nothing Verdict: +1 ", 0),
        ("nothing Verdict: +1\n", 0),
        ("nothing Verdict:+1", 0),
        ("nothing verdict: +1", 0),
        ("nothing\nVerdict: +1", 0),
        ("two\nlines Verdict: +1", 0),
        ("x Verdict: -1 Verdict: +1", 0),  # it hedges
        ("Verdict: -1 Verdict: +1", 0),
        ("Verdict: Verdict: +1", 0),
        ("x Verdict: +1 y", 0),
        ("x Verdict: \uff0b1", 0),
    ],
)
def test_only_a_rationale_and_one_verdict_at_the_end_are_parsed(text: str, score: int) -> None:
    assert parse_words(text) == (score, text.rpartition(" Verdict: ")[0] if score else "")


@given(
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1), st.sampled_from([1, -1])
)
def test_a_formatted_verdict_is_parsed_back(rationale: str, score: int) -> None:
    if not rationale[0].isspace():
        assert parse_words(format_verdict(rationale, score)) == (score, rationale)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It opened the fridge. \\boxed{1}", (1, "It opened the fridge.")),
        ("Nothing happened. \\boxed{ -1 }.", (-1, "Nothing happened.")),
        ("Good: \\boxed{+1}", (1, "Good:")),
        ("\\boxed{1}", (1, "")),
        ("First \\boxed{1}, no: \\boxed{-1}", (-1, "First \\boxed{1}, no:")),  # the last box counts
        ("<think>hm \\boxed{1}</think>Bad. \\boxed{-1}", (-1, "Bad.")),
        ("\\boxed{1} and then \\boxed{maybe}", (0, "")),
        ("\\boxed{1/2}", (0, "")),
        ("\\boxed{0}", (0, "")),
        ("\\boxed{11}", (0, "")),
        ("boxed{1}", (0, "")),
        ("1", (0, "")),
        ("", (0, "")),
    ],
)
def test_a_chat_model_puts_its_verdict_into_the_last_box(text: str, expected: tuple[int, str]) -> None:
    assert parse_boxed(text) == expected
