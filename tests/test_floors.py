"""The plan of the house, checked: who imports whom, how large things are, what nobody does.

A room imports only rooms that stand before it in ROOMS. A new module must be entered there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "acpserver"

ROOMS = """
    version
    errors
    jsontext
    cancel
    redaction
    plain_file
    prices
    addresses
    catalog
    credentials
    provider_setup
    model_choice
    logs
    process_table
    system
    guard
    processes
    workers

    rpc.message
    rpc.call
    rpc.pending
    rpc.legacy
    rpc.definitions
    rpc.checker
    rpc.forgive
    rpc.schema
    rpc.rules
    settings
    config_file
    config
    llm.types
    prompts
    records
    conversation
    llm.sse
    llm.chunked
    llm.server_words
    llm.verdicts
    llm.faults
    llm.wire
    llm.assembly
    llm.names
    llm.pairing
    llm.fields
    llm.answer
    llm.ndjson
    llm.listing
    llm.openai_servers
    llm.openai_answer
    llm.openai
    llm.anthropic_answer
    llm.anthropic
    llm.gemini_answer
    llm.gemini
    llm.ollama
    llm.responses_answer
    llm.responses
    llm.dialects
    tools.base
    tools.hiding
    tools.arguments
    tools.content

    transports.trace
    transports.stdio
    rpc.connection
    session_file
    store
    llm.causes
    llm.pool
    llm.retry
    llm.body
    llm.calls
    llm.http
    llm.offline
    workspace
    tools.textfile
    tools.files
    tools.edit
    tools.pump
    tools.output
    tools.terminal
    tools.bash
    tools.walk
    tools.grepworker
    tools.search
    tools.webtext
    tools.webpage
    tools.web
    tools.plan
    tools.ask

    permissions
    mcp
    turn_queue
    session
    sessions
    client
    client_files
    client_terminals
    llm.providers
    model_lists
    tools.builtin
    options

    agent.prompt
    agent.translate
    agent.repeats
    agent.toolcalls
    agent.replay
    agent.answer
    agent.loop

    session_methods
    option_methods
    provider_methods
    auth_methods
    turns

    server
    chat.render
    chat.permission
    chat.question
    chat.process
    chat.conversation
    chat.command
    doctor
    login
    sessions_command
    commands
    cli
    __main__

    validate.findings
    validate.documents
    validate.rules
    validate.state
    validate.world
    validate.envelope
    validate.official
    validate.hints
    validate.builtin
    validate.schemas
    validate.state_requests
    validate.state_handshake
    validate.state_sessions
    validate.state_options
    validate.state_turns
    validate.state_cancel
    validate.state_calls
    validate.state_client
    validate.state_answers
    validate.watchers
    validate.validator
    validate.stats
    validate.sides
    validate.event_logs
    validate.formats
    validate.recording
    validate
    validate.report_text
    validate.report_machine
    validate.live
    validate.summary
    validate.timeline
    validate.page
    validate.proxy_feed
    validate.proxy_judge
    validate.proxy
    validate.probe.verdict
    validate.probe.process
    validate.probe.editor
    validate.probe.link
    validate.probe.stage
    validate.probe.handshake
    validate.probe.framing
    validate.probe.sessions
    validate.probe.options
    validate.probe.turns
    validate.probe.cancels
    validate.probe.permissions
    validate.probe.tools
    validate.probe.ending
    validate.probe.command
    validate.command
    validate.door
""".split()

LAZY_IMPORTS = {
    ("llm.http", "acpserver.llm.calls"),
    ("rpc.checker", "jsonschema"),
    ("tools.web", "acpserver.tools.webpage"),
    ("session_file", "filelock"),
    ("llm.retry", "tenacity"),
    ("store", "hashlib"),
    ("model_lists", "hashlib"),
    ("cli", "acpserver"),
    ("validate.door", "acpserver.validate"),
}
"""(room, module): `requests`, behind two doors, `jsonschema` and `filelock` cost more than the rest of the
start together, so they wait until they are needed, and `tenacity` until a call has failed; so does all of
`acp-validate` that `run` does not use."""

MODULE_LINES = 300
FUNCTION_LINES = 60
STARTERS = {"Popen", "run", "call", "check_call", "check_output"}

FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    """The name in ROOMS of a file: `rpc.schema` for `rpc/schema.py`, `chat` for `chat/__init__.py`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_empty(path: Path) -> bool:
    """Whether a file holds no code but a docstring; such `__init__.py` files are no rooms."""
    body = ast.parse(path.read_bytes()).body
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


def is_room(path: Path) -> bool:
    """Whether a file must stand in ROOMS."""
    return path != PACKAGE / "__init__.py" and not (path.name == "__init__.py" and is_empty(path))


def imported_names(node: ast.AST) -> Iterator[str]:
    """The full names that one import statement may bind, modules or what is in them."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The rooms of this package that a module imports, with line numbers."""
    for node in ast.walk(tree):
        for name in imported_names(node):
            room = name.removeprefix("acpserver.")
            if name.startswith("acpserver.") and room in ROOMS:
                yield room, getattr(node, "lineno", 0)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Every function and method of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.fixture(params=FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def path(request: pytest.FixtureRequest) -> Path:
    """One file of the package after the other."""
    return Path(request.param)


def test_every_module_is_a_room_and_stands_in_the_list_once() -> None:
    assert len(ROOMS) == len(set(ROOMS))
    assert {room_of(path) for path in FILES if is_room(path)} == set(ROOMS)


def test_imports_go_down_only(path: Path) -> None:
    if not is_room(path):
        return
    assert room_of(path) in ROOMS, "a new room: enter it in ROOMS, above what it imports"
    own = ROOMS.index(room_of(path))
    imported = rooms_imported(ast.parse(path.read_bytes()))
    up = [(room, line) for room, line in imported if ROOMS.index(room) >= own]
    assert not up, f"imports of rooms that are not below {room_of(path)}: {up}"


def test_functions_import_nothing_but_what_was_measured() -> None:
    hidden = {
        (room_of(path), node.names[0].name if isinstance(node, ast.Import) else node.module)
        for path in FILES
        for function in functions(ast.parse(path.read_bytes()))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert hidden == LAZY_IMPORTS


def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES
    long = {
        function.name: function.end_lineno - function.lineno + 1
        for function in functions(ast.parse(text))
        if function.end_lineno and function.end_lineno - function.lineno + 1 > FUNCTION_LINES
    }
    assert long == {}


def test_everything_public_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_bytes())
    assert ast.get_docstring(tree), "no module docstring"
    found = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    found = [node for node in found if not node.name.startswith("_")]
    for node in list(found):
        if isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            found += [method for method in methods if not method.name.startswith("_")]
    assert [node.name for node in found if not ast.get_docstring(node)] == []


def test_nothing_is_asynchronous(path: Path) -> None:
    kinds = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    tree = ast.parse(path.read_bytes())
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, kinds)]
    assert "asyncio" not in {name.split(".")[0] for node in ast.walk(tree) for name in imported_names(node)}


def test_every_child_is_told_what_its_stdin_is(path: Path) -> None:
    """A child that inherits fd 0 would eat the editor's messages (field report 62)."""
    silent = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTERS:
            owner = node.func.value
            is_subprocess = isinstance(owner, ast.Name) and owner.id == "subprocess"
            if is_subprocess and "stdin" not in {keyword.arg for keyword in node.keywords}:
                silent.append(node.lineno)
    assert silent == []
    assert "from subprocess import" not in path.read_text(), "write subprocess.run, so that this test sees it"


def test_stdout_belongs_to_the_protocol_and_faults_are_not_swallowed(path: Path) -> None:
    tree = ast.parse(path.read_bytes())
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    assert [node.lineno for node in handlers if node.type is None] == []
    if room_of(path).split(".")[0] in ("chat", "doctor", "sessions_command", "cli"):
        return  # the commands that a person reads
    printed = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printed == []
