"""The build cache: compiled artefacts by content hash, safe for concurrent builders, without locks.

An artefact is built in a private folder and moved into place by one atomic rename; two builders of the same
thing both work, and either result is the same. A killed build leaves only its private folder, which the next
process sweeps away once it is old. What a crash of the machine or a full disk left damaged is recognised and built
anew: it would else fail for ever.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from extractor.errors import KernelgraftError

_SCRATCH_PREFIX = "building-"
_SCRATCH_AGE_S = 3600.0
_SIZES = "sizes"  # of a folder's files, one a line
_DIGEST_BYTES = hashlib.sha256().digest_size
MAX_ARTEFACTS = 4096  # of about 30 KiB each; the least recently built go first


class BuildCacheUnusable(KernelgraftError):
    """The folder for compiled kernels cannot be written."""

    template = "cannot write the build cache {path} ({why}); set XDG_CACHE_HOME to a writable folder"


class BuildCache:
    """Artefacts below one folder, addressed by key.

    ``root`` defaults to ``$XDG_CACHE_HOME/kernelgraft`` or ``~/.cache/kernelgraft``.

    Raises:
        BuildCacheUnusable: the folder cannot be created or written.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or default_cache_dir()).absolute()
        try:
            (self.root / "build").mkdir(parents=True, exist_ok=True)
            (self.root / "pch").mkdir(exist_ok=True)
            self._sweep()
        except OSError as error:
            raise BuildCacheUnusable(path=self.root, why=error.strerror or error) from error

    def path(self, kind: str, key: str) -> Path:
        """Where the artefact of that kind (``build`` or ``pch``) and key is or would be."""
        return self.root / kind / key

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A private folder on the cache's file system, gone afterwards. Raises BuildCacheUnusable."""
        try:
            folder = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=self.root))
        except OSError as error:
            raise BuildCacheUnusable(path=self.root, why=error.strerror or error) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, built: Path, target: Path) -> None:
        """Move a finished file or folder into place; if another builder was first, theirs stays."""
        try:
            os.rename(built, target)
        except OSError as error:
            if not target.exists():
                raise BuildCacheUnusable(path=target, why=error.strerror or error) from error

    def publish_library(self, built: Path, target: Path) -> None:
        """:meth:`publish` of a shared library with its digest behind it, where no loader looks."""
        with built.open("r+b") as file:
            digest = hashlib.sha256(file.read()).digest()
            file.write(digest)
        self.publish(built, target)

    def holds_library(self, target: Path) -> bool:
        """Whether a published library is there, byte for byte; a damaged one is removed."""
        try:
            content = target.read_bytes()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise BuildCacheUnusable(path=target, why=error.strerror or error) from error
        if hashlib.sha256(content[:-_DIGEST_BYTES]).digest() == content[-_DIGEST_BYTES:]:
            return True
        self._remove(target)
        return False

    def publish_folder(self, built: Path, target: Path) -> None:
        """:meth:`publish` of a folder of files with their sizes beside them."""
        (built / _SIZES).write_text(_sizes(built), encoding="utf-8")
        self.publish(built, target)

    def holds_folder(self, target: Path) -> bool:
        """Whether a published folder is there with files of the right sizes; a damaged one is removed.

        Files here are large and read at every start, so their bytes are not summed up.
        """
        if not target.exists():
            return False
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if (target / _SIZES).read_text(encoding="utf-8") == _sizes(target):
                return True
        self._remove(target)
        return False

    def _remove(self, target: Path) -> None:
        """Another builder may be doing the same, or have put a whole one there: that is built again, no harm."""
        with self.scratch() as folder:
            try:
                os.rename(target, folder / "damaged")
            except FileNotFoundError:
                return
            except OSError as error:
                raise BuildCacheUnusable(path=target, why=error.strerror or error) from error

    def _sweep(self) -> None:
        """Remove abandoned private folders, and the oldest artefacts beyond the cap."""
        now = time.time()
        for folder in self.root.glob(f"{_SCRATCH_PREFIX}*"):
            with contextlib.suppress(FileNotFoundError):
                if now - folder.stat().st_mtime > _SCRATCH_AGE_S:
                    shutil.rmtree(folder, ignore_errors=True)
        with os.scandir(self.root / "build") as entries:
            names = [entry.path for entry in entries]
        if len(names) > MAX_ARTEFACTS:
            for name in sorted(names, key=_modified)[: len(names) - MAX_ARTEFACTS]:
                Path(name).unlink(missing_ok=True)


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/kernelgraft`` or ``~/.cache/kernelgraft``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kernelgraft"


def _sizes(folder: Path) -> str:
    files = sorted(file for file in folder.iterdir() if file.name != _SIZES)
    return "".join(f"{file.stat().st_size} {file.name}\n" for file in files)


def _modified(name: str) -> float:
    try:
        return os.stat(name).st_mtime
    except FileNotFoundError:
        return 0.0
