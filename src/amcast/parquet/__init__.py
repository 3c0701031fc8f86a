"""Parquet files of flat tables, read and written with numpy: columns of integers, of text, and of lists of integers;
also of doubles, which are written only.

The usual library for Parquet is larger than all else that amcast needs, together. A run needs little of the format, and
this is all of it. What it writes, every program reads that knows Parquet. It reads what others write: pages of both
versions, all encodings in use for these types, all compressions in use.

    _thrift.py                 the footer and the headers of pages are Thrift structs, in the compact protocol
    _bits.py                   integers as bits: runs and bit-packed values; differences
    column.py, values.py       a column: what it is, and its values in memory
    footer.py                  what columns there are, and where in the file
    _pages.py, reader.py       from pages to columns
    _encode.py, writer.py      from columns to pages
"""
