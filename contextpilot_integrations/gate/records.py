"""Scores on disk: one JSON line per question, written as soon as it is scored, so that a second run continues."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextpilot_core import ConfigError
from contextpilot_core.files import append_private, parse, private_folder, read_text, write_private

_FIX = "name another file, or remove it"

_MOST = 1e12
"""No sum of as large scores leaves what a float holds well."""

Scores = Mapping[str, float]
"""Metric -> value of one answer."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The scores of one question by arm; ``group`` tells which questions belong together."""

    key: str
    group: str
    scores: Mapping[str, Scores]


class ScoreFile:
    """A JSON Lines file: the settings of the run first, then one record per question."""

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        """Open a file of equal settings, or begin one; a last line that broke off is taken away.

        One that holds no record yet is begun again, with these settings.

        Raises:
            ConfigError: the file was written with other settings, is no file of scores, or cannot be used.
        """
        self._path = path
        self.records: dict[str, Record] = {}
        with self._usable():
            if path.exists():
                self._read(settings)
            else:
                private_folder(path.parent)
                self._begin(settings)

    def add(self, record: Record) -> None:
        """Append a record. Raises `ConfigError` when the file cannot be written any more."""
        rounded = {arm: {name: round(value, 5) for name, value in row.items()} for arm, row in record.scores.items()}
        with self._usable(), append_private(self._path) as file:
            file.write(_line({"key": record.key, "group": record.group, "scores": rounded}))
        self.records[record.key] = Record(key=record.key, group=record.group, scores=rounded)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"{self._path} cannot be read and written ({type(error).__name__}: {error.strerror}); name another "
                "file for the scores"
            ) from None

    def _begin(self, settings: Mapping[str, object]) -> None:
        write_private(self._path, _line({"settings": dict(settings)}).encode())

    def _read(self, settings: Mapping[str, object]) -> None:
        os.close(os.open(self._path, os.O_RDWR))  # it will be written to
        if not self._path.is_file():
            raise OSError(0, "it is no file of its own")  # a pipe or a device gives nothing back
        text = read_text(self._path, fix=_FIX, error=ConfigError)
        whole = text[: text.rfind("\n") + 1]
        lines = [
            parse(line, f"{self._path}, line {number}", fix=_FIX, error=ConfigError)
            for number, line in enumerate(whole.split("\n"), start=1)
            if line
        ]
        try:
            found, records = _settings(lines[0]), [_record(line) for line in lines[1:]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(f"{self._path} is no file of scores ({type(error).__name__}); {_FIX}") from None
        self.records = {record.key: record for record in records}
        if found != settings and not self.records:
            self._begin(settings)
            return
        if found != settings:
            changed = sorted(key for key in {*found, *settings} if found.get(key) != settings.get(key))
            raise ConfigError(
                f"{self._path} was written with other settings ({', '.join(changed)}); name another file, or use "
                "the settings in its first line"
            )
        if whole != text:
            write_private(self._path, whole.encode())


def _settings(line: Any) -> dict[str, object]:
    settings: dict[str, object] = line["settings"]
    if not isinstance(settings, dict):
        raise TypeError("settings are an object")
    return settings


def _record(line: Any) -> Record:
    """Return a record that was read. Raises what tells that it is none."""
    key, group, scores = line["key"], line["group"], line["scores"]
    if not isinstance(key, str) or not isinstance(group, str):
        raise TypeError("a record has a key and a group, both texts")
    rows = {arm: {name: finite(value) for name, value in row.items()} for arm, row in scores.items()}
    return Record(key=key, group=group, scores=rows)


def finite(value: object) -> float:
    """Return a score that can be computed with. Raises `TypeError` for what is no number, `ValueError` for NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, got {type(value).__name__}")
    if not abs(value) <= _MOST:
        raise ValueError("a score must be finite")
    return float(value)


def _line(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"
