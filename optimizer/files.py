"""Writing files so that a reader, or a kill, never meets half of one."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from extractor.errors import KernelgraftError


class UnwritableFile(KernelgraftError):
    """A full disk, a read-only folder, a missing permission."""

    template = "cannot write {path}: {problem}; free some space or choose another folder with --out"


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to a temporary file beside ``path``, flush it to disk, and rename it into place.

    Raises:
        UnwritableFile: the file system refused; ``path`` is then as it was before.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise UnwritableFile(path=path, problem=error.strerror or str(error)) from error
