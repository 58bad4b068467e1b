"""Old names of methods and parameters, on input only (rules L1 and L2)."""

from __future__ import annotations

import copy

import pytest

from acpserver.rpc.legacy import canonical

TEXT = [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("sessions/list", None, ("session/list", None)),
        ("config/set", {"sessionId": "s"}, ("session/set_config_option", {"sessionId": "s"})),
        ("session/destroy", {"session_id": "s"}, ("session/close", {"sessionId": "s"})),
        ("session/new", {"cwd": "/"}, ("session/new", {"cwd": "/"})),
        (
            "session/prompt",
            {"sessionId": "s", "content": TEXT},
            ("session/prompt", {"sessionId": "s", "prompt": TEXT}),
        ),
        (
            "session/prompt",
            {"session_id": "s", "content": "hi"},
            ("session/prompt", {"sessionId": "s", "prompt": TEXT}),
        ),
        ("session/prompt", {"prompt": "hi"}, ("session/prompt", {"prompt": TEXT})),
        (
            "session/prompt",
            {"prompt": TEXT, "content": "x"},
            ("session/prompt", {"prompt": TEXT, "content": "x"}),
        ),
        (
            "session/prompt",
            {"sessionId": "a", "session_id": "b"},
            ("session/prompt", {"sessionId": "a", "session_id": "b"}),
        ),
        ("session/prompt", [1], ("session/prompt", [1])),
        ("session/prompt", "text", ("session/prompt", "text")),
        ("session/set_mode", {"content": "x"}, ("session/set_mode", {"content": "x"})),
    ],
)
def test_canonical(method: str, params: object, expected: object) -> None:
    before = copy.deepcopy(params)
    assert canonical(method, params) == expected
    assert params == before, "the input must not be changed"
