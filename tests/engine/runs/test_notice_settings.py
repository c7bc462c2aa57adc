"""Settings file for notifications."""

from __future__ import annotations

import stat

import pytest

from engine.runs.notices import KINDS, NoticeKind, NoticeSettings, load_notices, save_notices, settings_file

CHANGED = NoticeSettings(ended=False, restarted=True, least_minutes=0.5, command="play 'bell \"2\".ogg'")


def save_and_load(text: str) -> tuple[NoticeSettings, str]:
    """Write a settings file with the content `text`. Return the settings and the problems that are read from it."""
    path = settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    settings, problems = load_notices()
    assert all(problem.severity == "warning" for problem in problems)
    return settings, "\n".join(map(str, problems))


def test_missing_settings_file_gives_defaults() -> None:
    assert load_notices() == (NoticeSettings(), [])


def test_saved_settings_are_private_and_read_back() -> None:
    save_notices(CHANGED)
    assert load_notices() == (CHANGED, [])
    assert stat.S_IMODE(settings_file().stat().st_mode) == 0o600
    assert [path.name for path in settings_file().parent.iterdir()] == ["notices.toml"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("desktop = 1", "Write true or false."),
        ("least_minutes = -3", "Write a number from 0 to 10,080."),
        ("least_minutes = 'soon'", "Write a number from 0 to 10,080."),
        ("command = ['a', 'b']", "Write one line in quotes"),
        ("faild = true", "Did you mean “failed”?"),
        ("x = 1", "Available: ended, failed, stalled, restarted, least_minutes, desktop, command."),
    ],
)
def test_invalid_setting_has_remedy_and_default(line: str, message: str) -> None:
    settings, problems = save_and_load(f"{line}\nended = false\n")
    assert settings == NoticeSettings(ended=False)
    assert line.split(maxsplit=1)[0] in problems
    assert message in problems


def test_all_invalid_settings_are_reported() -> None:
    _settings, problems = save_and_load("desktop = 1\ncommand = 2\nleast_minutes = 3\n")
    assert len(problems.splitlines()) == 2


@pytest.mark.parametrize("text", ["ended = ", "[", "ended = true\nended = false", "a = " + "[" * 5000 + "]" * 5000])
def test_invalid_toml_gives_defaults(text: str) -> None:
    settings, problems = save_and_load(text)
    assert settings == NoticeSettings()
    assert "is not valid TOML" in problems


def test_unreadable_settings_file_gives_defaults() -> None:
    path = settings_file()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"ended = false # \xff")
    assert load_notices()[0] == NoticeSettings()
    assert "it is not UTF-8" in load_notices()[1][0].message
    path.write_bytes(b"ended = false")
    path.chmod(0o666)
    assert load_notices()[0] == NoticeSettings()
    assert "is writable by others" in load_notices()[1][0].message
    path.unlink()
    path.mkdir()
    assert load_notices()[0] == NoticeSettings()
    assert load_notices()[1][0].message == f"{path} can't be read: Is a directory."


def test_save_keeps_damaged_file() -> None:
    save_and_load("ended = nonsense")
    save_notices(CHANGED)
    assert load_notices() == (CHANGED, [])
    assert settings_file().with_name("notices.toml.damaged").read_text() == "ended = nonsense"


@pytest.mark.parametrize("kind", list(KINDS))
def test_wants_only_chosen_kinds(kind: NoticeKind) -> None:
    none = NoticeSettings(ended=False, failed=False, stalled=False, restarted=False, least_minutes=2)
    chosen = NoticeSettings(**{name: name == kind for name in KINDS}, least_minutes=2)  # type: ignore[arg-type]
    assert not none.wants(kind, 1000)
    assert [other for other in KINDS if chosen.wants(other, 120)] == [kind]
    assert not chosen.wants(kind, 119)
    assert not NoticeSettings(**{kind: True}, desktop=False, command=" ").wants(kind, 1000)  # type: ignore[arg-type]
