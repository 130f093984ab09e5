"""The error family every stage raises for bad input: one sentence, the thing's name, and the remedy.

A subclass states its sentence once, as a template; the front door prints it and exits with ``exit_code``,
without a traceback. Anything that is not a :class:`KernelgraftError` is a bug and keeps its traceback.
"""

from typing import ClassVar


class KernelgraftError(Exception):
    """Base of all errors a user can cause and cure.

    Subclasses set ``template``; keyword arguments fill it and stay readable as ``error.details``.

    >>> class NoSuchPreset(KernelgraftError):
    ...     template = "no preset named {name!r}; choose one of: {known}"
    >>> str(NoSuchPreset(name="gpt9", known="qwen3-0.6b"))
    "no preset named 'gpt9'; choose one of: qwen3-0.6b"
    """

    template: ClassVar[str] = "{message}"
    exit_code: ClassVar[int] = 1

    def __init__(self, **details: object) -> None:
        self.details = details
        super().__init__(self.template.format(**details))


class UsageError(KernelgraftError):
    """The command line or an argument makes no sense; exit status 2 as for other usage errors."""

    exit_code = 2
