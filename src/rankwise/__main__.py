"""`python -m rankwise`, and the program `rankwise`."""

import atexit
import os
import sys

from rankwise.cli import main

__all__ = ["run"]


def run() -> None:
    """Run the program and end the process.

    Exit functions run and streams are flushed; the destructors of torch's libraries do not, which would take a tenth of
    a GiB and some tenths of a second.
    """
    code = main()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
