"""Runs the command line in this process, as `main` does: arguments in, exit code and both outputs back."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from amcast.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *args: object) -> Outcome:
        self._monkeypatch.setattr("sys.argv", ["amcast", *map(str, args)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else int(code is not None), out, err)

    def refuses(self, *args: object) -> str:
        """Bad input: exit code 2, one line on stderr, nothing on stdout."""
        outcome = self(*args)
        assert outcome.code == 2, outcome
        assert outcome.out == ""
        lines = outcome.err.splitlines()
        assert len(lines) == 1, outcome.err
        assert lines[0].startswith("error: ")
        return lines[0]
