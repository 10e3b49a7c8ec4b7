"""Renderings equal those of transformers on the templates of every family; a template cannot hang, escape or fail unnamed."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from rlanything_jax.models import chat_template
from rlanything_jax.models.chat_template import ChatTemplate

FOLDER = Path(__file__).parent / "templates"
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": 'Looks at <b>things</b> & says "what\'s" there: é 🍎',
            "parameters": {
                "type": "object",
                "properties": {"what": {"type": "string", "enum": ["a", "b"]}},
                "required": ["what"],
            },
        },
    }
]
CALL = {"function": {"name": "look", "arguments": {"what": "a <&> 'é'", "deep": [1, 2.5, None, {"x": True}]}}}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one turn": [{"role": "user", "content": " Hi <b>\n"}],
    "system": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "Hi"}],
    "multi-turn": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": " Hello\n"},
        {"role": "user", "content": "And\n\nthen?"},
        {"role": "assistant", "content": "Bye"},
    ],
    "thoughts in the text": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>\nold\n</think>\n\nHello"},
        {"role": "user", "content": "Again"},
        {"role": "assistant", "content": "<think>\nnew\n</think>\n\nHello"},
    ],
    "thoughts apart": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "reasoning_content": "hm\n", "tool_calls": [CALL]},
        {"role": "tool", "content": "an é"},
        {"role": "assistant", "content": "An é", "reasoning_content": "so"},
    ],
    "tool results": [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": "I look", "tool_calls": [CALL]},
        {"role": "tool", "content": '{"seen": "x"}'},
        {"role": "tool", "content": "two\nlines"},
        {"role": "user", "content": "Well?"},
    ],
    "two calls": [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "x"},
    ],
    "only system": [{"role": "system", "content": "Be brief."}],
}


def template(name: str) -> ChatTemplate:
    return ChatTemplate((FOLDER / f"{name}.jinja").read_text(encoding="utf-8"), f"{name}.jinja")


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("family", ["qwen2.5", "qwen3", "smollm2", "llama3_like"])
def test_renderings_equal_those_of_transformers(family: str, conversation: str) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs transformers")
    ours = template(family)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>")), **SPECIALS
    )
    messages = CONVERSATIONS[conversation]
    compared = 0
    for tools in (None, [], TOOLS):
        for prompt in (True, False):
            for options in (
                {},
                {"enable_thinking": False},
                {"tools_with_user": False, "date_string": "1 May"},
            ):
                arguments = {"tools": tools, "add_generation_prompt": prompt, **options}
                try:
                    expected = theirs.apply_chat_template(
                        messages, chat_template=ours.source, tokenize=False, **arguments
                    )
                except Exception:  # what they refuse, ours refuses
                    with pytest.raises(ValueError, match="cannot render this conversation"):
                        ours.render(messages, **arguments, **SPECIALS)
                else:
                    assert ours.render(messages, **arguments, **SPECIALS) == expected
                    compared += 1
    refused = {
        ("llama3_like", "two calls"): 0,
        ("smollm2", "two calls"): 0,
        ("llama3_like", "only system"): 10,
    }
    assert compared == refused.get((family, conversation), 18)


def test_a_thinking_model_may_be_told_not_to_think() -> None:
    qwen3, messages = template("qwen3"), CONVERSATIONS["one turn"]
    prompt = qwen3.render(messages, add_generation_prompt=True)
    assert prompt.endswith("<|im_start|>assistant\n")
    assert qwen3.render(messages, add_generation_prompt=True, enable_thinking=False) == (
        prompt + "<think>\n\n</think>\n\n"
    )
    assert qwen3.uses("enable_thinking") and not template("qwen2.5").uses("enable_thinking")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("a{% generation %}{{ messages[0].content }}{% endgeneration %}b", "ahib"),
        ("{% if true %}\n  x\n  {% endif %}\ny\n", "  x\ny"),
        ("{{ {'b': '<é>', 'a': 1} | tojson(sort_keys=true) }}", '{"a": 1, "b": "<é>"}'),
        ("{{ documents[0].text }}", "a document"),
    ],
)
def test_constructs_of_templates(source: str, text: str) -> None:
    rendered = ChatTemplate(source, "x").render(
        [{"role": "user", "content": "hi"}], documents=[{"text": "a document"}]
    )
    assert rendered == text


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_STEPS", 1000)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(900) %}{% for j in range(900) %}{% endfor %}{% endfor %}",
        "{% set r = range(99)|list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
        "{% set r = range(99)|list %}{% for i in r %}{% for j in r if false %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ range(10**12) | length }}",
    ],
)
@pytest.mark.usefixtures("few_steps")
def test_a_template_that_never_ends_is_stopped(source: str) -> None:
    with pytest.raises(ValueError, match="runs more than 1000 steps, so it may never end"):
        ChatTemplate(source, "x").render([])


@pytest.mark.usefixtures("few_steps")
def test_the_budget_of_steps_is_that_of_one_rendering() -> None:
    most = ChatTemplate("{% for i in range(500) %}{% endfor %}", "x")  # 500 for the range, 500 for the passes
    assert [most.render([]) for _ in range(3)] == [""] * 3


def test_a_macro_without_end_is_stopped() -> None:
    with pytest.raises(ValueError, match="recursion"):
        ChatTemplate("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "x").render([])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 'a' + none }}", "can only concatenate"),
        ("{{ nobody.home }}", "'nobody' is undefined"),
        ("{{ 1 // 0 }}", "division"),
    ],
)
def test_what_a_template_may_not_do_names_the_template(source: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^a/chat_template.jinja: the template cannot render.*{reason}"):
        ChatTemplate(source, "a/chat_template.jinja").render([])


def test_a_syntax_error_names_file_and_line() -> None:
    with pytest.raises(ValueError, match=r"^a/chat_template\.jinja, line 2 of the template: "):
        ChatTemplate("{{ bos_token }}\n{% if %}", "a/chat_template.jinja")
