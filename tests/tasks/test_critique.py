"""The critique: the judge's own words, counted."""

from rlanything_jax.tasks.critique import NO_CRITIQUE, summarise


def test_the_commonest_rationales_come_first() -> None:
    said = ["was there before", "nothing happened", "does not help", "nothing happened", "was there before"]
    assert summarise([*said, "nothing happened"]) == "nothing happened; was there before"


def test_ties_are_in_alphabetical_order_whatever_the_order_of_the_votes() -> None:
    said = ["c", "a", "b"]
    assert summarise(said) == summarise(said[::-1]) == "a; b"
    assert summarise(said, most=3) == "a; b; c"
    assert summarise([*said, "c"], most=1) == "c"


def test_the_critic_summary_is_always_empty() -> None:
    """It is never empty: without rationales it says so, and votes that were not parsed have none."""
    assert summarise([]) == summarise(["", ""]) == NO_CRITIQUE
    assert summarise(["", "", "nothing happened"]) == "nothing happened"


def test_any_iterable_will_do() -> None:
    assert summarise(word for word in ("a", "a", "b")) == "a; b"
