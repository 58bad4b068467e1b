"""Names of methods and parameters that older documents of the protocol use. Pure functions.

Input only: what this server sends is always canonical.
"""

from __future__ import annotations

METHODS = {
    "sessions/list": "session/list",
    "config/set": "session/set_config_option",
    "session/destroy": "session/close",
}


def canonical(method: str, params: object) -> tuple[str, object]:
    """The method and parameters under today's names. Values are untouched, but for a prompt that is
    plain text instead of a list of content blocks."""
    method = METHODS.get(method, method)
    if not isinstance(params, dict):
        return method, params
    if "session_id" in params and "sessionId" not in params:
        params = dict(params)
        params["sessionId"] = params.pop("session_id")
    if method == "session/prompt" and "content" in params and "prompt" not in params:
        params = dict(params)
        params["prompt"] = params.pop("content")
    if method == "session/prompt" and isinstance(params.get("prompt"), str):
        params = {**params, "prompt": [{"type": "text", "text": params["prompt"]}]}
    return method, params
