"""Run the program; every ending is an exit code and at most one line on stderr, one that a command announces too."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from rankwise.extras import MissingExtra, require

__all__ = ["FAILED", "INTERRUPTED", "Stop", "is_first_process", "lost_a_process", "main", "sigterm_like_ctrl_c"]

STOPPED = "stopped by Ctrl-C; nothing was written"
# What the readers and checks raise for what a user gave them.
WRONG_INPUT = (ValueError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
FAILED = 1
INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: those after the program's name; by default the command line's.

    Returns:
        0 if all went well, 2 for a wrong argument, 130 after Ctrl-C, 1 for any other failure.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug, as_json = "--debug" in given, "--json" in given  # wherever they stand
    given = [each for each in given if each not in ("--debug", "--json")] or ["--help"]
    try:
        require("the command line", ("typer", "rich"), extra="train")
        from rankwise.cli.console import results_as_json

        with results_as_json(as_json), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            ending = _command()(given, prog_name="rankwise", standalone_mode=False)
        sys.stdout.flush()
    except (OSError, SystemExit) as problem:
        # Typer turns a broken pipe into an exit.
        if not isinstance(problem.__context__ if isinstance(problem, SystemExit) else problem, BrokenPipeError):
            if debug or isinstance(problem, SystemExit):
                raise
            return _explain(problem)
        # The reader has all it wants, as with `| head`; nothing more may be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        ending = INTERRUPTED
    except Exception as problem:
        if debug:
            raise
        return _explain(problem)
    # Some versions of typer turn Ctrl-C into this code themselves.
    if ending == INTERRUPTED:
        return _end(INTERRUPTED, STOPPED)
    return ending if isinstance(ending, int) else 0


@cache
def _command() -> Callable[..., object]:
    """Return the command line's parser, built once for a process."""
    from typer.main import get_command

    from rankwise.cli.app import app

    return get_command(app)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the line of code that raised it."""
    print(f"rankwise: {' '.join(str(message).split())}", file=sys.stderr, flush=True)


def _explain(problem: Exception) -> int:
    if isinstance(problem, MissingExtra):
        return _end(1, str(problem))
    if isinstance(problem, Stop):
        return _end(problem.code, _one_line(problem))
    # The command line's own errors, in whichever of its two classes this version of typer has them.
    message = getattr(problem, "format_message", None)
    if message is not None:
        return _end(getattr(problem, "exit_code", 2), f"{message().rstrip('.')} (see rankwise --help)")
    if type(problem).__name__ == "Abort":
        return _end(INTERRUPTED, STOPPED)
    if isinstance(problem, WRONG_INPUT):
        return _end(2, _one_line(problem))
    return _end(1, f"{_one_line(problem)} (rankwise --debug ... shows where)")


def _one_line(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.filename is not None and problem.strerror:
        return f"{problem.filename}: {problem.strerror.lower()}"
    return " ".join(str(problem).split()) or type(problem).__name__


def _end(code: int, message: str) -> int:
    print(f"rankwise: {message}", file=sys.stderr)
    return code


class Stop(Exception):
    """The program ends with this message and exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """Make a request to end raise KeyboardInterrupt, as Ctrl-C does; only the main thread can ask for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def is_first_process() -> bool:
    """Return whether this process prints for the run; the others print errors only."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")  # set by torchrun, by this program, by srun
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def lost_a_process(problem: RuntimeError) -> bool:
    """Return whether an error means that another process of the run has ended."""
    signs = ("closed by peer", "connection reset", "broken pipe", "connection refused", "timed out", "nccl error")
    world = os.environ.get("WORLD_SIZE", os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    return int(world) > 1 and any(sign in str(problem).lower() for sign in signs)
