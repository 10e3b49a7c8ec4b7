"""The task pool as HTML: how accuracy moved under each rewrite, and the tree of rewrites of each task."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from html import escape
from typing import Any

from rlanything_jax.report.read import Row
from rlanything_jax.report.text import clip, shown

FAMILIES = 12
NODES = 20  # shown of one family
INSTRUCTION, TEXT = 240, 400  # characters shown of an instruction; of a critique, an edit or a reason


@dataclass
class Node:
    """One rewrite: its latest event and the rewrites made from it."""

    event: Row
    children: list["Node"] = field(default_factory=list)

    @property
    def status(self) -> str:
        """proposed, accepted, rejected or refused"""
        return str(self.event.get("event"))

    def size(self) -> int:
        """Number of rewrites in this subtree, this one included."""
        return 1 + sum(child.size() for child in self.children)

    def accepted(self) -> int:
        """Number of accepted rewrites in this subtree."""
        return (self.status == "accepted") + sum(child.accepted() for child in self.children)

    def depth(self) -> int:
        """Generations in this subtree, this one included."""
        return 1 + max((child.depth() for child in self.children), default=0)


@dataclass
class Family:
    """An original task and the rewrites that descend from it."""

    task: str
    instruction: str
    children: list[Node] = field(default_factory=list)


def build_families(events: Sequence[Row]) -> list[Family]:
    """Original tasks with their rewrites, the deepest and most often accepted first."""
    nodes: dict[str, Node] = {}
    order: list[Node] = []
    for event in events:
        task = event.get("task")
        known = nodes.get(str(task)) if task is not None else None
        if known:
            known.event = known.event | {key: value for key, value in event.items() if value is not None}
            continue
        node = Node(event)
        order.append(node)
        if task is not None:
            nodes[str(task)] = node
    families: dict[str, Family] = {}
    for node in order:
        parent = str(node.event.get("parent"))
        if parent in nodes and nodes[parent] is not node:
            nodes[parent].children.append(node)
            continue
        family = families.setdefault(parent, Family(parent, str(node.event.get("parent_instruction") or "")))
        family.children.append(node)

    def interest(family: Family) -> tuple[int, int, int]:
        children = family.children
        return (
            max(child.depth() for child in children),
            sum(child.accepted() for child in children),
            sum(child.size() for child in children),
        )

    return sorted(families.values(), key=interest, reverse=True)


def lineage(events: Sequence[Row], config: Mapping[str, Any]) -> str:
    """The section of the task pool, '' where nothing was proposed; reads `adapt.low` and `adapt.high`."""
    families = build_families(events)
    if not families:
        return ""
    adapt = config.get("adapt")
    low, high = (adapt.get("low"), adapt.get("high")) if isinstance(adapt, Mapping) else (None, None)
    band = (
        (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None
    )
    trees = "".join(
        f'<details class="family"{" open" if i == 0 else ""}><summary>'
        f"<span>{shown(family.instruction, 300)}</span>"
        f"<small>{_tally(family)}</small></summary>"
        f'<p class="origin">original task <code>{shown(family.task, 120)}</code></p>'
        f"{_tree(family.children, band, NODES)}</details>"
        for i, family in enumerate(families[:FAMILIES])
    )
    rest = len(families) - FAMILIES
    more = (
        f'<p class="empty">{rest} more original tasks with rewrites are in tasks.jsonl.</p>'
        if rest > 0
        else ""
    )
    return f'<div class="pool">{_scatter(families, band)}{_counts(families)}</div>{trees}{more}'


def word_diff(before: str, after: str) -> str:
    """`after` as HTML with the words that are new in <ins> and those of `before` that are gone in <del>."""
    a, b = re.findall(r"\s+|\w+|[^\w\s]", before), re.findall(r"\s+|\w+|[^\w\s]", after)
    parts = []
    for kind, i, j, k, m in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        old, new = (escape("".join(words), quote=False) for words in (a[i:j], b[k:m]))
        if kind == "equal":
            parts.append(new)
            continue
        parts.append(
            (f"<del>{old}</del>" if old.strip() else "") + (f"<ins>{new}</ins>" if new.strip() else new)
        )
    return "".join(parts)


def _nodes(nodes: Sequence[Node]) -> list[Node]:
    return [inner for node in nodes for inner in (node, *_nodes(node.children))]


def _tally(family: Family) -> str:
    proposed = sum(child.size() for child in family.children)
    depth = max(child.depth() for child in family.children)
    accepted = sum(child.accepted() for child in family.children)
    return f"{proposed} rewrite{'' if proposed == 1 else 's'}, {accepted} accepted, {depth} deep"


def _tree(nodes: Sequence[Node], band: tuple[float, float] | None, budget: int) -> str:
    items = []
    for i, node in enumerate(nodes):
        if budget <= 0:
            left = sum(inner.size() for inner in nodes[i:])
            items.append(f'<li class="gap">{left} more left out</li>')
            break
        items.append(f"<li>{_node(node, band)}{_tree(node.children, band, budget - 1)}</li>")
        budget -= node.size()
    return f'<ul class="tree">{"".join(items)}</ul>' if items else ""


STATUS = {"accepted": "good", "rejected": "bad", "refused": "none", "proposed": "wait"}


def _node(node: Node, band: tuple[float, float] | None) -> str:
    event = node.event
    status = node.status if node.status in STATUS else "proposed"
    direction = str(event.get("direction") or "")
    arrow = {"harder": "▲ ", "easier": "▽ "}.get(direction, "")
    before, after = _share(event.get("accuracy_before")), _share(event.get("accuracy_after"))
    moved = f"{_percent(before)} → {_percent(after)}" if after is not None else _percent(before)
    instruction = str(event.get("instruction") or "")
    old = str(event.get("parent_instruction") or "")
    text = (
        word_diff(clip(old, INSTRUCTION), clip(instruction, INSTRUCTION))
        if instruction
        else shown(old, INSTRUCTION)
    )
    reason = f'<p class="reason">{shown(event.get("reason"), TEXT)}</p>' if event.get("reason") else ""
    parts = "".join(
        f"<dt>{name}</dt><dd>{shown(event.get(key), TEXT)}</dd>"
        for key, name in (("critique", "Critique"), ("edit", "Edit"))
        if event.get(key)
    )
    details = f"<details><summary>critique and edit</summary><dl>{parts}</dl></details>" if parts else ""
    label = "waiting" if status == "proposed" else status
    return (
        f'<div class="node {STATUS[status]}"><header><b class="tag {STATUS[status]}">{label}</b>'
        f'<span class="direction">{arrow}{escape(direction)}</span>'
        f"<small>iteration {escape(str(event.get('iteration')))}"
        f'</small>{_track(before, after, band)}<small class="moved">{moved}</small></header>'
        f'<p class="instruction">{text}</p>{reason}{details}</div>'
    )


def _share(value: Any) -> float | None:
    return min(1.0, max(0.0, float(value))) if isinstance(value, int | float) and value == value else None


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.3g}%"


def _track(before: float | None, after: float | None, band: tuple[float, float] | None) -> str:
    """A ruler from 0 to 1 with the accepted range, a ring at the accuracy before and a dot at that after."""
    if before is None:
        return ""

    def x(share: float) -> float:
        return 4 + 92 * share

    target = (
        f'<rect class="band" x="{x(band[0]):.1f}" y="2" width="{92 * (band[1] - band[0]):.1f}" height="12"/>'
        if band
        else ""
    )
    move = ""
    if after is not None:
        move = f'<line class="move" x1="{x(before):.1f}" x2="{x(after):.1f}" y1="8" y2="8"/>'
        move += f'<circle class="after" cx="{x(after):.1f}" cy="8" r="3.6"/>'
    return (
        f'<svg class="track" viewBox="0 0 100 16" aria-hidden="true">{target}'
        '<line class="axis" x1="4" x2="96" y1="8" y2="8"/>'
        f'<circle class="before" cx="{x(before):.1f}" cy="8" r="3"/>{move}</svg>'
    )


def _scatter(families: Sequence[Family], band: tuple[float, float] | None) -> str:
    """Accuracy before and after every verified rewrite; the more rewrites at a point, the larger its dot."""
    points: Counter[tuple[float, float, str, str]] = Counter()
    for family in families:
        for node in _nodes(family.children):
            before, after = (
                _share(node.event.get("accuracy_before")),
                _share(node.event.get("accuracy_after")),
            )
            if before is not None and after is not None:
                key = (round(before, 3), round(after, 3), node.status, str(node.event.get("direction")))
                points[key] += 1
    if not points:
        return ""
    left, top, size, pad = (
        42,
        4,
        240,
        14,
    )  # the plot's corner and side; dots at 0 and 1 stay inside by the padding
    largest = max(points.values())

    def px(share: float) -> float:
        return left + pad + (size - 2 * pad) * share

    def py(share: float) -> float:
        return top + size - pad - (size - 2 * pad) * share

    parts = []
    if band:
        parts.append(
            f'<rect class="band" x="{left}" width="{size}" y="{py(band[1]):.1f}" '
            f'height="{py(band[0]) - py(band[1]):.1f}"/>'
        )
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(
            f'<line class="grid" x1="{left}" x2="{left + size}" y1="{py(tick):.1f}" y2="{py(tick):.1f}"/>'
        )
        parts.append(
            f'<text x="{left - 7}" y="{py(tick) + 3.5:.1f}" text-anchor="end">{100 * tick:.0f}%</text>'
        )
        parts.append(
            f'<text x="{px(tick):.1f}" y="{top + size + 16}" text-anchor="middle">{100 * tick:.0f}%</text>'
        )
    parts.append(f'<line class="rule" x1="{px(0)}" y1="{py(0)}" x2="{px(1)}" y2="{py(1)}"/>')
    for (before, after, status, direction), count in sorted(points.items(), key=lambda item: -item[1]):
        kind = "good" if status == "accepted" else "bad"
        parts.append(
            f'<circle class="dot {kind}" cx="{px(before):.1f}" cy="{py(after):.1f}" '
            f'r="{2 + 6 * (count / largest) ** 0.5:.1f}"><title>{count} {escape(direction)}, '
            f"{escape(status)}: {before:.0%} → {after:.0%}</title></circle>"
        )
    total = sum(points.values())
    return (
        '<figure class="chart scatter"><figcaption><h4>Accuracy before and after a rewrite</h4>'
        f"<p>{total} verified rewrites, before across and after up; below the diagonal is harder; "
        "shaded: the accepted range.</p>"
        '<ul class="legend"><li><i class="key disc good"></i>accepted</li>'
        '<li><i class="key disc bad"></i>rejected</li></ul></figcaption>'
        '<svg viewBox="0 0 290 264" role="img" aria-label="accuracy before (across) and after (up) each of '
        f'{total} verified rewrites">{"".join(parts)}</svg></figure>'
    )


def _counts(families: Sequence[Family]) -> str:
    """Rewrites by direction and fate, and the commonest reasons for turning one down."""
    everyone = [node for family in families for node in _nodes(family.children)]
    fates = ("accepted", "rejected", "refused", "proposed")
    rows = ""
    for direction in ("harder", "easier"):
        fate = Counter(node.status for node in everyone if node.event.get("direction") == direction)
        cells = "".join(f"<td>{fate[name]}</td>" for name in fates)
        rows += f'<tr><th scope="row">{direction}</th>{cells}<td>{sum(fate.values())}</td></tr>'
    reasons = Counter(
        clip(node.event.get("reason"), 120) for node in everyone if node.status in ("rejected", "refused")
    )
    reasons.pop("", None)
    listed = "".join(f"<li><b>{count}</b> {escape(reason)}</li>" for reason, count in reasons.most_common(6))
    why = f'<h4>Why rewrites were turned down</h4><ul class="reasons">{listed}</ul>' if listed else ""
    heads = "".join(f'<th scope="col">{name}</th>' for name in (*fates[:3], "waiting", "all"))
    return (
        f'<div><h4>Fate of the rewrites</h4><table class="fates"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table>{why}</div>"
    )
