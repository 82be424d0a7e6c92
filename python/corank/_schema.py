"""Describes the elements of NumPy arrays as the fields of fixed-size records."""

from __future__ import annotations

_NUMBERS = {"u": "u", "i": "i", "f": "f", "b": "u", "M": "i", "m": "i"}


def schema_of(dtype) -> str:
    """Returns a NumPy dtype as the program's option --record. A dtype that is no record has the field `value`.

    Times are integers, and booleans, bytes and padding are bytes. Raises TypeError for text, float16 and other types that
    the program does not know, and ValueError for names that it cannot take.
    """
    import numpy
    dtype = numpy.dtype(dtype)
    if dtype.names is None:
        return f"value:{_type_of(dtype)}"
    fields = []
    at = 0

    def pad(end):
        if end < at:
            raise TypeError(f"{dtype}: fields overlap")
        if end > at:
            fields.append(f"padding{len(fields)}:bytes{end - at}")

    for name, (kind, offset, *_) in sorted(dtype.fields.items(), key=lambda item: item[1][1]):
        if any(c in name for c in ':,"') or name != name.strip() or not name:
            raise ValueError(f"field {name!r}: names that are empty, begin or end with a blank, or hold a colon, a comma or a "
                             "quote cannot be used; rename it")
        pad(offset)
        fields.append(f"{name}:{_type_of(kind)}")
        at = offset + kind.itemsize
    pad(dtype.itemsize)
    return ",".join(fields)


def _type_of(dtype) -> str:
    if dtype.kind in _NUMBERS and dtype.itemsize in (1, 2, 4, 8) and not (dtype.kind == "f" and dtype.itemsize == 2):
        return f"{_NUMBERS[dtype.kind]}{8 * dtype.itemsize}" + ("be" if dtype.str[0] == ">" else "")
    if dtype.kind in "SV" and dtype.names is None and dtype.itemsize != 0 and (dtype.subdtype is None or dtype.base.itemsize == 1):
        return f"bytes{dtype.itemsize}"
    raise TypeError(f"{dtype}: no type of fixed-size records; use integers, float32, float64, bytes, times or booleans")
