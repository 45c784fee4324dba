"""Scores on disk: one JSON line per question, written as soon as it is scored, so that a second run continues."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contextpilot_core import ConfigError

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
        try:
            if path.exists():
                self._read(settings)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._begin(settings)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read and written ({type(error).__name__}); name another file for the scores"
            ) from error

    def add(self, record: Record) -> None:
        """Append a record."""
        rounded = {arm: {name: round(value, 5) for name, value in row.items()} for arm, row in record.scores.items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line({"key": record.key, "group": record.group, "scores": rounded}))
        self.records[record.key] = Record(key=record.key, group=record.group, scores=rounded)

    def _begin(self, settings: Mapping[str, object]) -> None:
        self._path.write_text(_line({"settings": dict(settings)}), "utf-8")

    def _read(self, settings: Mapping[str, object]) -> None:
        try:
            text = self._path.read_text("utf-8")
            whole = text[: text.rfind("\n") + 1]
            head, *lines = [json.loads(line) for line in whole.splitlines()]
            found = head["settings"]
            self.records = {line["key"]: Record(**line) for line in lines}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{self._path} is no file of scores ({type(error).__name__}); name another file, or remove it"
            ) from error
        if found != settings and not self.records and isinstance(found, dict):
            self._begin(settings)
            return
        if found != settings:
            changed = sorted(key for key in {*found, *settings} if found.get(key) != settings.get(key))
            raise ConfigError(
                f"{self._path} was written with other settings ({', '.join(changed)}); name another file, or use "
                "the settings in its first line"
            )
        if whole != text:
            self._path.write_text(whole, "utf-8")


def _line(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"
