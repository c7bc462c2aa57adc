"""Storage of the alert rules in `alerts.json`, next to the window's other settings."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from gui.alerts.rules import DEFAULTS, KINDS, KindId, Rule, problems
from gui.translation import tr


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[Rule, ...]


class RuleStore:
    """File of the rules in `folder`, by default Footplate's home."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or paths.home()) / "alerts.json"

    def load(self) -> tuple[dict[KindId, Rule], str]:
        """Read the rules, or the defaults, and return them with a message about a damaged file, "" for none.

        A damaged file is renamed to `alerts.json.damaged`, so that nothing in it is lost.
        """
        rules = dict(DEFAULTS)
        try:
            saved = msgspec.json.decode(self.path.read_bytes(), type=_File).rules
        except FileNotFoundError:
            return rules, ""
        except OSError as error:
            return rules, tr("Can't read the alert rules ({strerror}: {path}). The defaults apply.").format(
                strerror=error.strerror, path=self.path
            )
        except NOT_DECODED as error:
            return rules, self._move_damaged(str(error))
        wrong = [str(problem) for rule in saved for problem in problems(rule)]
        if wrong:
            return rules, self._move_damaged(wrong[0])
        rules |= {rule.kind: rule for rule in saved}
        return rules, ""

    def save(self, rules: dict[KindId, Rule]) -> str:
        """Write the rules, all or nothing; return an error message, "" for success."""
        text = msgspec.json.format(msgspec.json.encode(_File(tuple(rules[kind] for kind in KINDS))))
        temporary = self.path.with_name(self.path.name + ".part")
        try:
            paths.make_folder(self.path.parent)
            temporary.write_bytes(text + b"\n")
            os.replace(temporary, self.path)
        except OSError as error:
            return tr(
                "The alert rules apply until the window closes, but can't be saved: {strerror} ({temporary})."
            ).format(strerror=error.strerror, temporary=temporary)
        return ""

    def _move_damaged(self, why: str) -> str:
        damaged = self.path.with_name(self.path.name + ".damaged")
        try:
            os.replace(self.path, damaged)
        except OSError as error:
            return tr(
                "The alert rules are corrupted ({why}) and the file can't be moved aside ({strerror}: {path})."
            ).format(why=why, strerror=error.strerror, path=self.path)
        return tr(
            "The alert rules were corrupted ({rstrip}). The defaults apply; the file was moved to {damaged}."
        ).format(rstrip=why.rstrip("."), damaged=damaged)
