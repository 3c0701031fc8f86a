"""What is not installed with amcast itself, and how to get it: the extras of pyproject.toml."""

from __future__ import annotations

from importlib.util import find_spec

from .core import UsageError

# What an extra is for, and modules that only it brings.
_EXTRAS = {
    "spark": ("Spark", ("pyspark", "pyarrow", "pandas", "scipy")),
    "report": ("Spark and Matplotlib", ("pyspark", "pyarrow", "pandas", "scipy", "matplotlib")),
    "social": ("METIS", ("pymetis",)),
}


class MissingExtraError(UsageError, ImportError):
    """The command line prints its one line, and a program sees that an import failed."""


def require(extra: str, who: str) -> None:
    """Raises unless all of the extra is installed. Commands ask before they work, not after."""
    what, modules = _EXTRAS[extra]
    if any(find_spec(module) is None for module in modules):
        raise MissingExtraError(f"{who} needs {what}: pip install 'amcast[{extra}]'")
