"""The task pool's trees: events joined into nodes, lineage, diffs, reasons, counts."""

from rlanything_jax.report.families import build_families, lineage, word_diff


def event(kind: str, task: str | None, parent: str, **more: object) -> dict:
    return {
        "event": kind, "task": task, "parent": parent, "iteration": 1, "generation": 1,
        "direction": "harder",
        "instruction": "put a cup in the fridge", "parent_instruction": "put a mug in the fridge",
        "critique": "too easy", "edit": "swap", "accuracy_before": 1.0, "accuracy_after": None, "reason": "",
        **more,
    }  # fmt: skip


EVENTS = [
    event("proposed", "a1", "a"),
    event("proposed", "b1", "b"),
    event("accepted", "a1", "a", accuracy_after=0.5),
    event("refused", None, "a1", reason="no such object", direction="easier"),
    event("proposed", "a2", "a1"),
    event("rejected", "b1", "b", accuracy_after=1.0, reason="accuracy stayed at 1"),
]


def test_events_become_trees_of_their_latest_state() -> None:
    first, second = build_families(EVENTS)
    assert (first.task, second.task) == ("a", "b")  # the deeper first
    assert first.instruction == "put a mug in the fridge"
    (node,) = first.children
    assert (node.status, node.event["accuracy_after"], node.event["critique"]) == (
        "accepted",
        0.5,
        "too easy",
    )
    assert [child.status for child in node.children] == ["refused", "proposed"]
    assert (node.size(), node.accepted(), node.depth()) == (3, 1, 2)
    assert second.children[0].status == "rejected"


def test_page_shows_fates_reasons_and_counts() -> None:
    html = lineage(EVENTS, {"adapt": {"low": 0.2, "high": 0.8}})
    assert "3 rewrites, 1 accepted, 2 deep" in html
    assert "100% → 50%" in html and "no such object" in html and "waiting" in html
    assert '<tr><th scope="row">harder</th><td>1</td><td>1</td><td>0</td><td>1</td><td>3</td></tr>' in html
    assert '<tr><th scope="row">easier</th><td>0</td><td>0</td><td>1</td><td>0</td><td>1</td></tr>' in html
    assert "2 verified rewrites" in html and 'class="band"' in html
    assert 'class="band"' not in lineage(EVENTS, {})


def test_no_events_no_section() -> None:
    assert lineage([], {}) == ""


def test_a_task_that_names_itself_as_its_parent_does_not_loop() -> None:
    assert build_families([event("proposed", "a", "a")])[0].children[0].children == []


def test_word_diff_by_hand() -> None:
    assert word_diff("put a mug here", "put a cup here") == "put a <del>mug</del><ins>cup</ins> here"
    assert word_diff("a", "a <b>") == "a <ins>&lt;b&gt;</ins>".replace("a <ins>", "a<ins> ")
