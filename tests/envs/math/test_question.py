import pytest

from rlanything_jax.envs.code.problem import RecordError
from rlanything_jax.envs.math.question import Question, from_gsm8k, from_math500

MATH = {
    "id": "math500-1",
    "idx": 0,
    "prompt": "<｜begin▁of▁sentence｜>Put your answer within \\boxed{{}}.<｜User｜>What is $1+1$?<｜Assistant｜>",
    "reference_solution": "\\boxed{2} it is.\n#### 2",
}


def test_gsm8k() -> None:
    question = from_gsm8k(
        {"id": "train-1", "question": "How many?", "answer": "6*7=<<6*7=42>>42\n#### 1,042"}
    )
    assert (question.id, question.statement, question.answer) == ("gsm8k/train-1", "How many?", "1,042")


def test_math500_prompt_is_stripped() -> None:
    question = from_math500(MATH)
    assert (question.statement, question.answer) == ("What is $1+1$?", "2")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reference_solution": "two"}, "reference_solution: holds no final answer"),
        ({"reference_solution": "two\n####"}, "reference_solution: holds no final answer"),
        ({"prompt": "What is $1+1$?"}, "prompt: holds no user turn"),
    ],
)
def test_a_bad_record_names_its_field(fields: dict, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_math500(MATH | fields)


def test_a_question_survives_json() -> None:
    question = from_math500(MATH)
    assert Question.from_json(question.to_json()) == question
