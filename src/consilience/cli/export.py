"""``consilience export``: a student as a sentence-transformers folder and an ONNX file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    student: Annotated[Path, typer.Argument(metavar="STUDENT", help="Folder of a finished student.")],
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    formats: Annotated[
        str, typer.Option("--format", help="Comma-separated: sentence-transformers, onnx.")
    ] = "sentence-transformers,onnx",
    results: Annotated[
        Path | None, typer.Option(help="File with the output of evaluate --json, for the model card.")
    ] = None,
    rotation: Annotated[
        Path | None, typer.Option(help="Rotation into the frame that serves (consilience rotate).")
    ] = None,
    quantize: Annotated[
        str | None, typer.Option(metavar="int8", help="Also write onnx/model_int8.onnx, a quarter of the size.")
    ] = None,
    truncate_dim: Annotated[
        int | None, typer.Option(min=1, help="Keep the leading dimensions; a width that the student was trained at.")
    ] = None,
    clients: Annotated[
        str, typer.Option("--for", help="Comma-separated clients that are to serve it; refused where one can't.")
    ] = "",
    title: Annotated[str | None, typer.Option(help="Heading of the model card. Default: the folder's name.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing export.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the export's manifest on standard output.")] = False,
) -> None:
    """Export a student to forms that load without remote code, check that they agree, and write a model card.

    The folder loads with SentenceTransformer(path), its backbone with AutoModel; onnx/model.onnx maps tokens to the
    normalised embedding and the token states. Every form must equal the student to 1e-4 on a fixed set of texts, or
    nothing is exported.
    The int8 file is measured by its cosine to the student on these texts, which is printed and on the card.
    """
    from consilience.recipes.export import export

    manifest = export(
        student,
        out=out,
        formats=[name.strip() for name in formats.split(",") if name.strip()],
        results=results,
        title=title,
        rotation=rotation,
        quantize=quantize,
        truncate_dim=truncate_dim,
        clients=[name.strip() for name in clients.split(",") if name.strip()],
        overwrite=overwrite,
    )
    if as_json:
        sys.stdout.write(json.dumps(manifest) + "\n")
        return
    parity = manifest["parity"]["max_abs_difference"]
    sys.stdout.write(f"{out}: {manifest['id']}, {manifest['parameters']:,} parameters, {manifest['dimensions']} d\n")
    for form, difference in parity.items():
        sys.stdout.write(f"  {form}: differs from the student by at most {difference:.1e}\n")
    if "int8" in manifest["parity"]:
        int8 = manifest["parity"]["int8"]
        cosines = f"{int8['min_cosine']:.4f} at least, {int8['mean_cosine']:.4f} in the mean"
        sys.stdout.write(f"  onnx-int8: cosine to the student {cosines}\n")
