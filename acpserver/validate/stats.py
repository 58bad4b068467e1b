"""What a conversation was like in figures. One thread; memory stays the same however long it is."""

from __future__ import annotations

from collections import Counter

from acpserver.validate.findings import Entry
from acpserver.validate.state import Call, since, text

_KEPT = 4096  # samples of one kind; when they are full, every second one goes


class Samples:
    """Numbers of which the middle, the 95th part and the greatest are asked for."""

    def __init__(self) -> None:
        self.count = 0
        self.greatest = 0.0
        self.total = 0.0
        self._kept: list[float] = []
        self._stride = 1

    def add(self, value: float) -> None:
        """One more number."""
        if self.count % self._stride == 0:
            self._kept.append(value)
            if len(self._kept) >= _KEPT:
                self._kept = self._kept[::2]
                self._stride *= 2
        self.count += 1
        self.total += value
        self.greatest = max(self.greatest, value)

    def quantile(self, part: float) -> float:
        """The number below which this part of the numbers lies (exact up to 4096 of them)."""
        ordered = sorted(self._kept)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0


class Stats:
    """Counts, sizes and times, by method. Times are in seconds, sizes in bytes."""

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.calls: Counter[tuple[str, str]] = Counter()
        """(side, method) of requests and notifications."""
        self.updates: Counter[str] = Counter()
        """Kinds of `session/update`."""
        self.sizes: dict[str, Samples] = {}
        """Sizes of messages by method; answers count to the method that they answer."""
        self.latencies: dict[str, Samples] = {}
        """From a request to its answer, by method."""
        self.first_chunk = Samples()
        """From a prompt to the first piece of text or thought."""
        self.chunk_rate = Samples()
        """Chunks in a second, of turns with at least two."""
        self.silence = 0.0
        """The longest time without any message."""
        self.begin: float | None = None
        self.end: float | None = None
        self._turns: dict[str, tuple[float, float | None, int]] = {}

    def add(self, entry: Entry, label: str, answers: Call | None) -> None:
        """Count one message. `label` is its method, or the method of the request that it answers."""
        self.messages += 1
        size = entry.size or len(entry.text)
        self.size += size
        self.sizes.setdefault(label, Samples()).add(size)
        if entry.time is not None:
            if self.begin is None:
                self.begin = entry.time
            if self.end is not None:
                self.silence = max(self.silence, entry.time - self.end)
            self.end = entry.time
        if answers is not None:
            self._answered(entry, label, answers)
        elif label:
            self.calls[entry.sender, label] += 1
            self._called(entry, label)

    def _called(self, entry: Entry, label: str) -> None:
        message = entry.message
        params = message.get("params") if isinstance(message, dict) else None
        session = text(params, "sessionId")
        if label == "session/prompt" and entry.time is not None:
            self._turns[session] = (entry.time, None, 0)
        elif label == "session/update" and isinstance(params, dict):
            kind = text(params.get("update"), "sessionUpdate")
            self.updates[kind] += 1
            if kind in ("agent_message_chunk", "agent_thought_chunk"):
                self._chunk(session, entry.time)

    def _chunk(self, session: str, time: float | None) -> None:
        turn = self._turns.get(session)
        if turn is None or time is None:
            return
        begin, first, count = turn
        if first is None:
            self.first_chunk.add(time - begin)
        self._turns[session] = (begin, time if first is None else first, count + 1)

    def _answered(self, entry: Entry, label: str, request: Call) -> None:
        waited = since(request.mark.time, entry.time)
        if waited is not None:
            self.latencies.setdefault(label, Samples()).add(waited)
        if label == "session/prompt":
            _, first, count = self._turns.pop(request.session, (0.0, None, 0))
            taken = since(first, entry.time)
            if taken and count > 1:
                self.chunk_rate.add(count / taken)
