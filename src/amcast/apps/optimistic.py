"""Optimistic execution: an application runs on optimistic deliveries, and is told to confirm or to undo.

A replica hands its deliveries to an `Executor`, one object a process. On an optimistic delivery the application
executes the message and gives a tentative result. On a final delivery, if the message is the first of the tentative
ones, its execution is confirmed: the result stands, and was known early. Otherwise the guess was wrong. All tentative
executions are undone, the latest first, and the message is executed in its true place. Then the undone messages are
executed again: first those that were guessed after it, then those that it overtook. A message that is overtaken twice
is not executed until its final delivery: its sender may have crashed, and the delivery may never come.

So an execution is confirmed only in the state to which the final deliveries before it lead, and when nothing is
tentative the application is in the state to which the final deliveries lead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..core import AppMessage, MessageId

Result = TypeVar("Result")


class Application(ABC, Generic[Result]):
    """A deterministic state machine whose last execution can be taken back."""

    @abstractmethod
    def execute(self, message: AppMessage) -> Result: ...

    @abstractmethod
    def undo(self, message: AppMessage) -> None:
        """Takes back the latest execution that is neither confirmed nor undone, which is that of this message."""

    @abstractmethod
    def confirm(self, message: AppMessage) -> None:
        """The earliest execution that is not confirmed, that of this message, will not be undone any more."""


@dataclass(frozen=True)
class Tentative(Generic[Result]):
    """The result of an optimistic execution: it may still change."""

    id: MessageId
    result: Result


@dataclass(frozen=True)
class RolledBack:
    """The tentative result of this message does not count any more; another one follows."""

    id: MessageId


@dataclass(frozen=True)
class Confirmed(Generic[Result]):
    """The result that counts; `early`: it was known before the final delivery."""

    id: MessageId
    result: Result
    early: bool


Event = Tentative[Result] | RolledBack | Confirmed[Result]


@dataclass(slots=True)
class _Executed(Generic[Result]):
    message: AppMessage
    result: Result
    overtaken: bool


class Executor(Generic[Result]):
    def __init__(self, application: Application[Result]) -> None:
        self._application = application
        self._tentative: deque[_Executed[Result]] = deque()  # executed, not confirmed, in the order of execution
        self._rollbacks = 0

    @property
    def rollbacks(self) -> int:
        """How many executions were undone."""
        return self._rollbacks

    @property
    def tentative(self) -> int:
        return len(self._tentative)

    def opt_deliver(self, message: AppMessage) -> list[Event[Result]]:
        """Executes a message in advance. Drivers never hand over one that is executed or confirmed already."""
        return [self._execute(message, overtaken=False)]

    def deliver(self, message: AppMessage) -> list[Event[Result]]:
        if self._tentative and self._tentative[0].message.id == message.id:
            executed = self._tentative.popleft()
            self._application.confirm(message)
            return [Confirmed(message.id, executed.result, early=True)]
        undone = self._undo_all()
        result = self._application.execute(message)
        self._application.confirm(message)
        events: list[Event[Result]] = [RolledBack(each.message.id) for each in undone]
        events.append(Confirmed(message.id, result, early=False))
        ids = [each.message.id for each in undone]
        at = ids.index(message.id) if message.id in ids else len(ids)
        events += [self._execute(each.message, each.overtaken) for each in undone[at + 1 :]]
        events += [self._execute(each.message, overtaken=True) for each in undone[:at] if not each.overtaken]
        return events

    def _execute(self, message: AppMessage, overtaken: bool) -> Tentative[Result]:
        result = self._application.execute(message)
        self._tentative.append(_Executed(message, result, overtaken))
        return Tentative(message.id, result)

    def _undo_all(self) -> list[_Executed[Result]]:
        """What was executed, in the order of execution."""
        for executed in reversed(self._tentative):
            self._application.undo(executed.message)
        undone = list(self._tentative)
        self._rollbacks += len(undone)
        self._tentative.clear()
        return undone
