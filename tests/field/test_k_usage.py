"""Token counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.moments import bash, stage
from tests.fakes.llm_answers import text


def test_row_184_185_186_the_context_is_that_of_the_last_call(tmp_path: Path) -> None:
    """Counts of several calls were added up, cached tokens counted twice, a missing count was a null."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.json").write_text('{"contextWindow": 1000}')
    with stage(tmp_path, env={"ACPSERVER_HOME": str(home)}) as at:
        calls = bash("true").used(100, 10), bash("true").used(150, 20, cached=90), text("end").used(200, 30)
        turn = at.prompt(*calls)
        assert turn.wait() == "end_turn"
        told = [(update["used"], update["size"]) for update in turn.of_kind("usage_update")]
        assert told == [(110, 1000), (170, 1000), (230, 1000)]
        assert turn.reply is not None
        usage: dict[str, Any] = turn.reply.result["usage"]  # type: ignore[assignment]
        assert (usage["totalTokens"], usage["cachedReadTokens"]) == (510, 90)
        silent = at.prompt(text("no counts").no_usage())
        assert silent.wait() == "end_turn"
        assert silent.of_kind("usage_update") == []
