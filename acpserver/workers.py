"""A pool of daemon threads that grows on demand and shrinks when idle.

`concurrent.futures` is not used because its threads keep the process alive when a job cannot be woken,
and because importing it costs as much as the rest of the start-up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from acpserver.errors import INTERNAL_ERROR, RpcError

log = logging.getLogger(__name__)

Job = Callable[[], None]


NO_THREAD = "the system has no thread left"


def start_thread(target: Callable[[], object], name: str) -> threading.Thread | None:
    """Run `target` on a daemon thread of its own; None when the system has no thread left."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class WorkerPool:
    """Runs jobs, each on one thread. Any thread may submit; jobs over `limit` wait in order."""

    def __init__(self, name: str, limit: int, idle_seconds: float = 10.0):
        self._name = name
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._jobs_lock = threading.Lock()  # guards the jobs and the two counts
        self._job_came = threading.Condition(self._jobs_lock)
        self._job_done = threading.Condition(self._jobs_lock)
        self._jobs: deque[Job] = deque()
        self._threads = 0
        self._idle = 0  # threads that wait for a job

    def submit(self, job: Job) -> None:
        """Run `job` on a worker. Never waits. Raises `RpcError` when the system has no thread left and there
        is none yet; else the job waits for one that is there."""
        with self._jobs_lock:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._job_came.notify()
                return
            if self._threads >= self._limit:
                return
            self._threads += 1
        if start_thread(self._run, self._name) is None:
            with self._jobs_lock:
                self._threads -= 1
                if self._threads == 0 and job in self._jobs:
                    self._jobs.remove(job)
                    raise RpcError.with_details(INTERNAL_ERROR, f"This cannot be done now: {NO_THREAD}")

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no job runs or waits. False when `timeout` seconds were not enough."""
        deadline = time.monotonic() + timeout
        with self._jobs_lock:
            while self._jobs or self._threads > self._idle:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._job_done.wait(left)
        return True

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:  # the last resort: jobs answer for their own faults
                log.exception("a job on %s failed", self._name)

    def _next(self) -> Job | None:
        """The next job, or None when this thread has been idle for long enough to end."""
        deadline = time.monotonic() + self._idle_seconds
        with self._jobs_lock:
            self._idle += 1
            self._job_done.notify_all()
            while not self._jobs:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._threads -= 1
                    self._idle -= 1
                    self._job_done.notify_all()
                    return None
                self._job_came.wait(left)
            self._idle -= 1
            return self._jobs.popleft()
