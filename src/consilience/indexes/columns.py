"""Which columns of a table hold ids and vectors, and Arrow lists to and from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np

from consilience.core.errors import InputError
from consilience.indexes.index import Vectors

_OPTIONS = {"id": "--index-id-column", "vector": "--vector-column"}  # of ``consilience migrate``


def choose_column(
    label: str, role: str, chosen: str | None, candidates: Sequence[str], everything: Sequence[str], usual: str
) -> str:
    """Return the column that is meant.

    Args:
        label: the table, for messages.
        role: "id" or "vector".
        chosen: what the person said, or None.
        candidates: columns of a fitting type.
        everything: all columns.
        usual: the name that decides where there are several.

    Raises:
        InputError: the chosen column isn't there or doesn't fit, or none or several can be meant.
    """
    if chosen is not None:
        if chosen in candidates:
            return chosen
        problem = f"column {chosen!r} can't hold {role}s" if chosen in everything else f"no column {chosen!r}"
        raise InputError(
            f"{label}: {problem}; these can: {', '.join(candidates) or 'none'}. Choose one with {_OPTIONS[role]}"
        )
    if len(candidates) == 1:
        return candidates[0]
    if usual in candidates:
        return usual
    if not candidates:
        raise InputError(
            f"{label}: no column can hold {role}s; its columns are {', '.join(everything) or 'none'}. "
            "Give a table with one"
        )
    raise InputError(
        f"{label}: several columns can hold the {role}s: {', '.join(candidates)}. Choose one with {_OPTIONS[role]}"
    )


def arrow_columns(label: str, schema: Any, id_column: str | None, vector_column: str | None) -> tuple[str, str]:  # noqa: ANN401 - pyarrow.Schema
    """Return the names of the id column and the vector column of an Arrow schema.

    Raises:
        InputError: see :func:`choose_column`.
    """
    names = list(schema.names)
    ids = [field.name for field in schema if _can_be_id(field.type)]
    lists = [field.name for field in schema if _is_float_list(field.type)]
    vector = choose_column(label, "vector", vector_column, lists, names, "vector")
    chosen = choose_column(label, "id", id_column, ids, names, "id")
    for name in (chosen, vector):
        if names.count(name) > 1:
            raise InputError(f"{label}: {names.count(name)} columns are called {name!r}. Give each its own name")
    return chosen, vector


def ids_of(label: str, array: Any) -> list[str]:  # noqa: ANN401 - pyarrow.Array
    """Return a column of ids as text.

    Raises:
        InputError: one is missing.
    """
    import pyarrow as pa

    if array.null_count:
        raise InputError(
            f"{label}: {array.null_count} rows of one block have no id. Fill them in or choose another column"
        )
    if is_uuid(array.type):
        return [str(UUID(bytes=value)) for value in array.storage.to_pylist()]
    ids: list[str] = array.cast(pa.string()).to_pylist()
    return ids


def vectors_of(label: str, array: Any, ids: Sequence[str], dimensions: int) -> Vectors:  # noqa: ANN401
    """Return a column of float lists as an array (n, dimensions).

    Raises:
        InputError: a vector or a number in it is missing, or a vector has another width; the message names the id.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.null_count:
        row = pc.index(pc.is_null(array), value=True).as_py()
        raise InputError(f"{label}: id {ids[row]!r} has no vector. Embed or delete the rows without one")
    if not pa.types.is_fixed_size_list(array.type):
        widths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
        other = np.flatnonzero(widths != dimensions)
        if other.size:
            raise InputError(
                f"{label}: id {ids[other[0]]!r} has a vector of width {widths[other[0]]}, the first has {dimensions}. "
                "Give an index whose vectors all have one width"
            )
    numbers = array.flatten()
    if numbers.null_count:
        row = pc.index(pc.is_null(numbers), value=True).as_py() // dimensions
        raise InputError(f"{label}: the vector of id {ids[row]!r} lacks a number. Embed or delete that row")
    with np.errstate(over="ignore"):  # what float32 can't hold becomes infinite, and is refused as that
        return np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float32).reshape(-1, dimensions)


def new_schema(schema: Any, vector: str, dimensions: int) -> Any:  # noqa: ANN401 - pyarrow.Schema
    """Return the schema with the vector column's width changed, its kind of list and of number kept."""
    import pyarrow as pa

    position = schema.get_field_index(vector)
    field = schema.field(position)
    if pa.types.is_fixed_size_list(field.type):
        new = pa.list_(field.type.value_field, dimensions)
    elif pa.types.is_large_list(field.type):
        new = pa.large_list(field.type.value_field)
    else:
        new = pa.list_(field.type.value_field)
    return schema.set(position, field.with_type(new))


def with_vectors(batch: Any, schema: Any, vector: str, vectors: Vectors) -> Any:  # noqa: ANN401 - pyarrow.RecordBatch
    """Return a record batch with other vectors, under the schema from :func:`new_schema`."""
    import pyarrow as pa

    kind = schema.field(vector).type
    dtype = kind.value_type.to_pandas_dtype()
    numbers = pa.array(np.ascontiguousarray(vectors, dtype=dtype).reshape(-1), type=kind.value_type)
    rows, dimensions = vectors.shape
    if pa.types.is_fixed_size_list(kind):
        column = pa.FixedSizeListArray.from_arrays(numbers, type=kind)
    else:
        ends = np.arange(rows + 1) * dimensions
        large = pa.types.is_large_list(kind)
        offsets = pa.array(ends, type=pa.int64() if large else pa.int32())
        column = (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, numbers, type=kind)
    # By position: other columns may share a name.
    columns = [column if name == vector else batch.column(at) for at, name in enumerate(schema.names)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def is_uuid(kind: Any) -> bool:  # noqa: ANN401 - pyarrow.DataType
    """Return whether an Arrow type is that of UUIDs."""
    return getattr(kind, "extension_name", None) == "arrow.uuid"


def _can_be_id(kind: Any) -> bool:  # noqa: ANN401 - pyarrow.DataType
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return bool(texts or pa.types.is_integer(kind) or is_uuid(kind))


def _is_float_list(kind: Any) -> bool:  # noqa: ANN401 - pyarrow.DataType
    import pyarrow as pa

    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and pa.types.is_floating(kind.value_type))
