"""Processes killed at random moments lose nothing that they acknowledged: the short form of
`bench/sessions_crash.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashing import Campaign, Told, losses

ROUNDS = 3


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost(seed: int, tmp_path: Path) -> None:
    with Campaign(tmp_path, seed) as campaign:
        for _ in range(ROUNDS):
            campaign.round()
    assert campaign.counts["kills"] >= ROUNDS
    assert campaign.counts["sessions"] >= ROUNDS
    assert campaign.counts["facts"] > 3 * ROUNDS


def told(*updates: dict[str, object]) -> Told:
    found = Told()
    for update in updates:
        found.update(update)
    found.finish_texts()
    return found


def chunk(key: str, text: str, kind: str = "agent_message_chunk") -> dict[str, object]:
    return {"sessionUpdate": kind, "messageId": key, "content": {"type": "text", "text": text}}


ASKED = chunk("u", "M1", "user_message_chunk")
CALL: dict[str, object] = {"sessionUpdate": "tool_call", "toolCallId": "c", "status": "pending", "title": "t"}
ENDED: dict[str, object] = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}
PLAN: dict[str, object] = {"sessionUpdate": "plan", "entries": []}
WHOLE = (ASKED, chunk("a", "one "), chunk("a", "two"), CALL, ENDED, PLAN, chunk("b", "three"))


@pytest.mark.parametrize(
    "again",
    [
        WHOLE[1:],
        (*WHOLE[:2], *WHOLE[3:]),
        (*WHOLE[:3], *WHOLE[5:]),
        (*WHOLE[:4], {**ENDED, "status": "failed"}, *WHOLE[5:]),
        (*WHOLE[:5], *WHOLE[6:]),
        WHOLE[:-1],
        (*WHOLE[3:5], *WHOLE[:3], *WHOLE[5:]),
    ],
)
def test_every_kind_of_loss_is_noticed(again: tuple[dict[str, object], ...]) -> None:
    assert list(losses(told(*WHOLE), told(*WHOLE))) == []
    assert list(losses(told(*WHOLE), told(*again))) != []
