"""Traces of other systems, in CSV or JSON lines, as runs.

    sources   which file is which table, and which of its columns is which
    parts     a file as blocks of whole lines, in any number of parts that are read apart
    cells     a block as columns of texts
    values    texts as numbers, times, names
    found     what the files say besides their rows: who there is, who belongs where, who crashed
    settle    the description of the run: what the user declared, what follows from the files, what nobody can know
    numbers   names become numbers, by one rule
    memory    all of it for files that fit into memory; `amcast.pipeline.importing` does the same on Spark

Nothing is guessed silently: what was inferred is said in words, and what the files can't show is left unproven.
"""

from .memory import import_in_memory
from .problems import ForeignTraceError, Problem
from .settle import Declared, Imported, read_declared
from .sources import Source, find_sources

__all__ = [
    "Declared",
    "ForeignTraceError",
    "Imported",
    "Problem",
    "Source",
    "find_sources",
    "import_in_memory",
    "read_declared",
]
