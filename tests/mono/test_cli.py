from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest
import typer

import sgl_amd_mono
from sgl_amd_mono import cli, commands, env
from sgl_amd_mono.errors import BuildError


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process; returns its exit status."""
    monkeypatch.setattr(sys, "argv", ["amd-mono", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Replaces the commands by `fail`, which raises the exception that the test puts into the list."""
    app = typer.Typer(pretty_exceptions_enable=False)
    errors: list[Exception] = []

    @app.command()
    def fail() -> None:
        raise errors[0]

    monkeypatch.setattr(cli, "app", app)
    return errors


def test_help_lists_commands_and_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == 0
    help_text = capsys.readouterr().out
    for module in pkgutil.iter_modules(commands.__path__):
        assert f" {module.name.replace('_', '-')} " in help_text
    for variable in env.VARIABLES:
        assert variable.name in help_text


def test_no_arguments_shows_the_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch) == 2
    shown = capsys.readouterr()
    assert "Usage: amd-mono" in shown.out + shown.err


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"amd-mono {sgl_amd_mono.__version__}\n"


def test_a_users_error_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: list[Exception]
) -> None:
    """Word for word: brackets are not markup, and long lines stay whole."""
    message = f"The compiler [clang] said: {'x' * 300}\nkernel.hip:1:[bold]"
    failing.append(BuildError(message))
    assert run(monkeypatch) == cli.FAILURE == 2
    shown = capsys.readouterr()
    assert shown.err == f"Error: {message}\n"
    assert shown.out == ""


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, failing: list[Exception]) -> None:
    failing.append(RuntimeError("a bug"))
    monkeypatch.setattr(sys, "argv", ["amd-mono"])
    with pytest.raises(RuntimeError, match="a bug") as raised:
        cli.main()
    assert raised.traceback[-1].name == "fail"


def test_starts_without_torch() -> None:
    """Importing torch takes seconds: a command that needs it imports it when it runs."""
    script = "import sys, sgl_amd_mono.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
