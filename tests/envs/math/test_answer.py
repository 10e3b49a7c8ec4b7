import importlib.util
import threading
import time

import pytest

from rlanything_jax.envs.math import answer as answers
from rlanything_jax.envs.math import final_answer, match

needs_algebra = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None,
    reason="math-verify is not installed: pip install -e '.[math]'",
)


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so $\boxed{42}$.", "42"),
        (r"\boxed{1} or rather \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {\text{a {b} c}}", r"\text{a {b} c}"),
        (r"\fbox{7}", "7"),
        ("6 * 7\n#### 42", "42"),
        ("#### 1\n#### 1,000 \nmore", "1,000"),
        (r"#### 3 and \boxed{4}", "4"),
        (r"\boxed{5} and \boxed{6", "5"),
        (r"\boxed{6", None),
        ("it is 42", None),
        ("####", None),
        ("", None),
    ],
)
def test_final_answer(solution: str, answer: str | None) -> None:
    assert final_answer(solution) == answer


@pytest.mark.parametrize(
    ("answer", "reference", "equal"),
    [
        ("42", "42", True),
        ("42.0", "42", True),
        ("1,000", "1000", True),
        ("$1000", "1000", True),
        (r"\$1{,}000", "1000", None),
        ("1/2", "0.5", True),
        (r"\frac{1}{2}", "0.50", True),
        (r"-\dfrac{2}{4}", "-1/2", True),
        ("0.333", "1/3", False),
        ("43", "42", False),
        ("10000000000000001", "10000000000000002", False),  # equal as floats
        (r"\text{Evelyn}", "Evelyn", True),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})", True),
        ("", "42", False),
        (None, "42", False),
        ("9" * 3000, "42", False),
    ],
)
def test_what_needs_no_algebra(answer: str | None, reference: str, equal: bool | None) -> None:
    if equal is None:
        assert answers.number(answers.plain(answer)) is None
    else:
        assert match(answer, reference).equal is equal


@needs_algebra
@pytest.mark.parametrize(
    ("answer", "reference", "equal"),
    [
        (r"\sqrt{12}", r"2\sqrt{3}", True),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", True),
        (r"2\sqrt{3}", r"3\sqrt{2}", False),
        ("x^2+2x+1", "(x+1)^2", True),
        ("x^2+2x+2", "(x+1)^2", False),
        ("6 - 5i", "-5i + 6", True),
        ("5", "x=5", True),
        ("90", r"90^\circ", True),
        (r"5 \text{ cm}", "5", True),
        (r"42\text{ dollars}", "42", True),
        (r"41\text{ dollars}", "42", False),
        ("2 million", "2", False),
        ("[0, 1)", r"\left[0, 1\right)", True),
        ("(0, 1)", "[0, 1]", False),
        (r"(-\infty, 2) \cup (3, \infty)", r"(3,\infty)\cup(-\infty,2)", True),
        ("3, 5, 7", r"\{7, 5, 3\}", True),
        (r"(1, 2)", "(2, 1)", False),
        ("__import__('os')", "42", False),
        (r"\frac{1}{0}", "42", False),
    ],
)
def test_algebra(answer: str, reference: str, equal: bool) -> None:
    assert match(answer, reference, timeout_s=30).equal is equal


@needs_algebra
def test_huge_powers_do_not_hang_and_the_next_answer_is_compared() -> None:
    start = time.monotonic()
    for tower in ("9**9**9", "9^{9^{9}}", r"9^{9^{9^{9}}}"):
        assert not match(tower, "42", timeout_s=1).equal
    assert match(r"\sqrt{12}", r"2\sqrt{3}", timeout_s=30).equal
    assert time.monotonic() - start < 60  # four starts of the child at most


@needs_algebra
def test_rewards_are_not_zero_off_the_main_thread() -> None:
    # A time limit that relies on signals raises there, and was taken for a wrong answer.
    outcomes = []

    def compare() -> None:
        outcomes.append(match(r"\sqrt{8}", r"2\sqrt{2}", timeout_s=30).equal)

    threads = [threading.Thread(target=compare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 4


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_algebra", answers._Algebra())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install -e '.\[math\]'"):
        match(r"\sqrt{12}", r"2\sqrt{3}")
    assert match("42", "42").equal  # no algebra, no package
