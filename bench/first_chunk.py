"""From the prompt to the first visible chunk, against a direct HTTP call to the same model server.

Warm: the same session asks again and again, and so does a `requests.Session` here; one after the other.
First: a new agent, prompted right after `session/new` or when it has had time to load what a model call
needs, against a first call on a new connection here.
"""

from __future__ import annotations

import statistics
import time

import requests
from common import Agent, ModelServer, Table, parser

SETTLED = 0.5  # seconds; far less than a person needs to write a prompt


def direct(session: requests.Session, url: str) -> float:
    """Milliseconds to the first chunk of a direct call."""
    begin = time.perf_counter()
    with session.post(url + "/chat/completions", json={"messages": []}, stream=True) as response:
        blocks = response.iter_content(None)
        while b"word" not in next(blocks):
            pass
        taken = time.perf_counter() - begin
        for _ in blocks:  # to the end, so that the connection is kept
            pass
    return taken * 1000


def through(agent: Agent, session: str) -> float:
    """Milliseconds to the first chunk of a turn."""
    begin = time.perf_counter()
    asked = agent.prompt(session)
    while b"agent_message_chunk" not in agent.line():
        pass
    taken = time.perf_counter() - begin
    agent.answer_to(asked)
    return taken * 1000


def first(url: str, wait: float) -> float:
    """Milliseconds to the first chunk of the first turn of a new agent."""
    with Agent(url) as agent:
        agent.initialize()
        session = agent.new_session()
        time.sleep(wait)
        return through(agent, session)


def direct_first(url: str) -> float:
    """Milliseconds to the first chunk of a direct call on a new connection."""
    with requests.Session() as session:
        return direct(session, url)


def main() -> int:
    """Measure and print."""
    options = parser(__doc__, 100).parse_args()
    table = Table("first chunk")
    with ModelServer() as model, requests.Session() as session:
        url = model.url("stream-3")
        with Agent(url) as agent:
            agent.initialize()
            chat = agent.new_session()
            for _ in range(10):
                direct(session, url), through(agent, chat)
            pairs = [(direct(session, url), through(agent, chat)) for _ in range(options.repeats)]
        few = max(5, options.repeats // 10)
        new = [direct_first(url) for _ in range(few)]
        at_once = [first(url, 0) for _ in range(few)]
        settled = [first(url, SETTLED) for _ in range(few)]
    calls = [pair[0] for pair in pairs]
    turns = [pair[1] for pair in pairs]
    table.samples("direct call, warm", calls, "ms")
    table.samples("turn, warm", turns, "ms")
    more = statistics.median(turns) - statistics.median(calls)
    table.row("a warm turn takes longer by", more, "ms", most=3)
    table.samples("direct call, new connection", new, "ms")
    table.samples(f"first turn, {SETTLED:g} s after session/new", settled, "ms")
    more = statistics.median(settled) - statistics.median(new)
    table.row("it takes longer by", more, "ms", most=30)
    table.samples("first turn, right after session/new", at_once, "ms")
    more = statistics.median(at_once) - statistics.median(new)
    table.row("it takes longer by", more, "ms", most=30)
    return table.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
