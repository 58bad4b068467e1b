"""`acpserver sessions`: list, show, export and delete stored sessions, for people.

Runs on the main thread and prints. It only reads, but for `delete`; servers may use the sessions meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from acpserver.agent import translate
from acpserver.agent.replay import replay
from acpserver.config import Config
from acpserver.conversation import Conversation, add_up
from acpserver.errors import RESOURCE_NOT_FOUND, RpcError
from acpserver.records import Record
from acpserver.sessions import Sessions
from acpserver.store import Store

SHORT_ID = 13  # characters: enough to be unique among a million sessions, nearly always
FENCE = "````"


def run(config: Config, action: str, session: str, form: str) -> int:
    """Do what the command line says. Returns 0, or 1 when there is no such session or the disk refuses."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    store = Store(config.state_dir)
    try:
        for line in _lines(store, action, session, form):
            print(_harmless(line))
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # whoever read our output has seen enough
    except RpcError as error:
        sys.stderr.write(f"acpserver: {error.details}\n")
        return 1
    return 0


def _lines(store: Store, action: str, session: str, form: str) -> Iterable[str]:
    if action == "list":
        return _listed(store)
    session_id = _whole_id(store, session)
    file = store.find(session_id)
    if file is None:
        raise _unknown(session)
    if action == "delete":
        file.delete()
        return [f"deleted {session_id}"]
    conversation, found = add_up(file.read())
    if action == "show":
        return [*_facts(session_id, file.path, conversation), "", *markdown(found)]
    changed = os.stat(file.path).st_mtime
    if form == "json":
        return [json.dumps(_document(session_id, changed, conversation, found), indent=2, ensure_ascii=False)]
    return [f"# {conversation.title or session_id}", "", *markdown(found)]


def _whole_id(store: Store, text: str) -> str:
    """The id that begins with `text`, whose first letters may be left out. Raises `RpcError`."""
    prefix = text if text.startswith("sess_") else f"sess_{text}"
    found = store.find_by_prefix(prefix)
    if len(found) > 1:
        details = f"More than one session begins with {text}: write more of its id."
        raise RpcError.with_details(RESOURCE_NOT_FOUND, details)
    if not found:
        raise _unknown(text)
    return found[0]


def _unknown(text: str) -> RpcError:
    details = f"There is no session {text[:100]}; at least 4 characters of its id are needed."
    return RpcError.with_details(RESOURCE_NOT_FOUND, f"{details} See: acpserver sessions list")


def _listed(store: Store) -> Iterator[str]:
    sessions = Sessions(store, [""])
    cursor = ""
    count = 0
    while True:
        page, cursor = sessions.page(None, cursor)
        for entry, head in page:
            changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.changed / 1e9))
            count += 1
            yield f"{entry.session_id[:SHORT_ID]}  {changed}  {head.title or '(no title)'}  [{head.cwd}]"
        if not cursor:
            break
    if not count:
        yield f"No sessions are stored in {store.folder or '(no home folder)'}"


def _facts(session_id: str, path: str, conversation: Conversation) -> Iterator[str]:
    yield f"session   {session_id}"
    yield f"title     {conversation.title or '(none)'}"
    yield f"folder    {conversation.cwd}"
    yield f"file      {path}"
    yield f"created   {translate.iso_time(conversation.created)}"
    yield f"changed   {translate.iso_time(os.stat(path).st_mtime)}"
    usage = conversation.usage
    yield f"turns     {conversation.turns} ({usage.input_tokens} tokens read, {usage.output_tokens} written)"
    for name, value in sorted(conversation.options.items()):
        yield f"option    {name}: {value}"
    for tool, answer in sorted(conversation.answers.items()):
        yield f"always    {answer} {tool}"
    if conversation.damaged > conversation.reported:
        yield f"damaged   lines of the file: {conversation.damaged - conversation.reported}"


def _document(
    session_id: str, changed: float, conversation: Conversation, found: list[Record | None]
) -> dict[str, object]:
    """The session as one JSON object: `updates` are ACP SessionUpdate objects, as session/load sends them."""
    return {
        "sessionId": session_id,
        "cwd": conversation.cwd,
        "title": conversation.title,
        "createdAt": translate.iso_time(conversation.created),
        "updatedAt": translate.iso_time(changed),
        "usage": translate.prompt_usage(conversation.usage),
        "options": conversation.options,
        "updates": list(replay(found, running=False)),
    }


def markdown(found: Iterable[Record | None]) -> Iterator[str]:
    """The conversation as lines of Markdown."""
    calls: dict[object, dict[str, Any]] = {}
    speaker = ""
    for update in merged(replay(found, running=False), calls):
        kind: Any = update["sessionUpdate"]
        said = {"user_message_chunk": "User", "plan": "Plan"}.get(kind, "Agent")
        if said != speaker:
            speaker = said
            yield f"## {speaker}"
            yield ""
        yield from _markdown_of(kind, update, calls)
        yield ""


def merged(
    updates: Iterable[dict[str, Any]], calls: dict[object, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The updates with the chunks of one message joined, and each call once, as it ended."""
    joined: list[dict[str, Any]] = []
    for update in updates:
        last = joined[-1] if joined else {}
        if update["sessionUpdate"] == "tool_call_update":
            calls[update["toolCallId"]].update(update)
        elif update["sessionUpdate"] == "tool_call":
            calls[update["toolCallId"]] = dict(update)
            joined.append(update)
        elif update.get("messageId") and update["messageId"] == last.get("messageId"):
            both = [last["content"], update["content"]]
            if all(content.get("type") == "text" for content in both):
                joined[-1] = {**last, "content": {**both[0], "text": both[0]["text"] + both[1]["text"]}}
                continue
            joined.append(update)
        else:
            joined.append(update)
    yield from joined


def _markdown_of(kind: str, update: dict[str, Any], calls: dict[object, dict[str, Any]]) -> Iterator[str]:
    if kind == "tool_call":
        call = calls[update["toolCallId"]]
        yield f"**{call.get('title', 'tool call')}** ({call.get('status')})"
        for item in call.get("content", ()):
            yield from ("", FENCE, *_content(item), FENCE)
    elif kind == "plan":
        for entry in update["entries"]:
            mark = "x" if entry.get("status") == "completed" else " "
            yield f"- [{mark}] {entry.get('content')}"
    else:
        lines = _block(update["content"]).splitlines()
        yield from (f"> {line}" for line in lines) if kind == "agent_thought_chunk" else lines


def _content(item: dict[str, Any]) -> list[str]:
    if item.get("type") == "diff":
        old, new = str(item.get("oldText") or ""), str(item.get("newText") or "")
        removed, added = [f"-{line}" for line in old.splitlines()], [f"+{line}" for line in new.splitlines()]
        return [str(item.get("path")), *removed, *added]
    return _block(item.get("content", {})).splitlines()


def _block(content: dict[str, Any]) -> str:
    if content.get("type") == "text":
        return str(content.get("text", ""))
    if content.get("type") == "resource_link":
        return f"[{content.get('name')}]({content.get('uri')})"
    resource = content.get("resource")
    uri = resource.get("uri") if isinstance(resource, dict) else content.get("mimeType")
    return f"[{content.get('type')}: {uri}]"


def _harmless(text: str) -> str:
    """Text without control characters, which a terminal would obey."""
    return text.translate(_CONTROLS)


_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
