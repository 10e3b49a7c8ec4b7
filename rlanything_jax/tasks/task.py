"""A task: what a policy is asked to do, as plain data that can be stored, sent to a worker and rewritten."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Task:
    """One task of one world.

    `spec` is what the world needs to build the environment and must survive JSON. A rewritten task names the
    task it was derived from in `parent` and counts the rewrites between it and an original in `generation`.
    """

    id: str
    world: str
    instruction: str
    # A mapping cannot be hashed; equality still compares it.
    spec: Mapping[str, Any] = dataclasses.field(hash=False)
    parent: str | None = None
    generation: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that `json.dumps` accepts."""
        return {
            "id": self.id,
            "world": self.world,
            "instruction": self.instruction,
            "spec": dict(self.spec),
            "parent": self.parent,
            "generation": self.generation,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Task:
        """Inverse of `to_json`. Raises TypeError where a field is missing or unknown."""
        return cls(**data)
