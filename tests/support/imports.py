"""What a program imports: a fresh interpreter is asked, since this one has imported everything."""

from __future__ import annotations

import subprocess
import sys


def imported_by(code: str, *arguments: str) -> set[str]:
    """The modules outside the standard library that are there after `code`, run with these arguments, and the packages
    that they are of."""
    code = f"import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n{code}"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    names = done.stderr.splitlines()[-1].split()
    return {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
