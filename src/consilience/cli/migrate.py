"""``consilience migrate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from consilience.committee.migration_artefact import Migration
    from consilience.indexes.index import Metric


def command(
    index: Annotated[
        str,
        typer.Argument(
            metavar="INDEX",
            help="x.npy, x.parquet, x.faiss, lancedb:FOLDER#TABLE, qdrant:FOLDER#COLLECTION or pgvector:DSN#TABLE.",
        ),
    ],
    to: Annotated[str, typer.Option(help="The new model: a student, an exported folder, or a teacher spec.")],
    sample: Annotated[Path, typer.Option(help="Table (csv, tsv, JSON, parquet, Arrow) of ids and texts in the index.")],
    out: Annotated[Path, typer.Option(help="Folder of the migration: both maps and the report.")],
    rewrite: Annotated[
        str | None, typer.Option(help="New index to write. Without it the index stays, and queries are mapped.")
    ] = None,
    id_column: Annotated[str, typer.Option(help="The sample's column of ids.")] = "id",
    column: Annotated[str, typer.Option(help="The sample's column of texts.")] = "text",
    index_id_column: Annotated[str | None, typer.Option(help="The index's column of ids.")] = None,
    vector_column: Annotated[str | None, typer.Option(help="The index's column of vectors.")] = None,
    metric: Annotated[str | None, typer.Option(help="cosine, dot or l2; default what the store says.")] = None,
    old_model: Annotated[
        str | None, typer.Option(help="The model the index was made with; checked against it.")
    ] = None,
    old_prompt: Annotated[str | None, typer.Option(help="Text before each document of the old model.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Text before each document of the new model.")] = None,
    query_prompt: Annotated[str | None, typer.Option(help="Text before each query of the new model.")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Map to try; repeatable. Default orthogonal, whitened, ridge, low-rank.")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="Of the low-rank map.")] = None,
    fit_rows: Annotated[int, typer.Option(min=1, help="Texts that the maps are fitted to.")] = 24_000,
    held_out: Annotated[int, typer.Option(min=11, help="Other texts that they are judged on.")] = 5_000,
    limit: Annotated[int | None, typer.Option(min=1, help="Texts of the sample at most.")] = None,
    bar: Annotated[float, typer.Option(help="Recall@10 retention that a rewritten index must have.")] = 0.8,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Rewrite below the bar; fit to few texts.")] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let a Hugging Face model run code of its own.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out; never an index.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Move a vector index into a new model's frame without embedding its texts again.

    Maps are fitted on a sample of texts and judged against full re-embedding: the share of its 1, 10 and 100 nearest
    neighbours that are still found. The source index is only read.
    """
    from consilience.recipes.migrate import migrate

    migration = migrate(
        index,
        to=to,
        sample=sample,
        out=out,
        rewrite=rewrite,
        id_column=id_column,
        column=column,
        index_id_column=index_id_column,
        vector_column=vector_column,
        metric=cast("Metric | None", metric),  # the index checks it
        old_model=old_model,
        old_prompt=old_prompt,
        prompt=prompt,
        query_prompt=query_prompt,
        methods=method,
        rank=rank,
        fit_rows=fit_rows,
        held_out=held_out,
        limit=limit,
        bar=bar,
        seed=seed,
        force=force,
        trust_remote_code=trust_remote_code,
        overwrite=overwrite,
    )
    if as_json:
        import json

        sys.stdout.write(
            json.dumps({"path": str(migration.path), **migration.manifest, "cost": _cost(migration)}) + "\n"
        )
    else:
        _show(migration)


def _cost(migration: Migration) -> dict[str, Any]:
    from consilience.core.files import read_json
    from consilience.core.manifests import TIMING

    cost: dict[str, Any] = read_json(migration.path / TIMING)
    return cost


def _show(migration: Migration) -> None:
    from rich.table import Table

    from consilience.cli.tables import table_console

    manifest = migration.manifest
    rows = manifest["rows"]
    table = Table(
        title=f"Neighbours of full re-embedding that are still found: {manifest['queries']} queries among "
        f"{manifest['gallery']} texts, {rows['fit']} others fitted",
        title_justify="left",
    )
    table.add_column("way")
    table.add_column("map")
    ks = list(manifest["scores"][0]["retention"])
    for k in ks:
        table.add_column(f"recall@{k}", justify="right")
    table.add_column("cosine", justify="right")
    table.add_column("verdict")
    if manifest["unmapped"] is not None:
        table.add_row("as it is", "none", *(f"{manifest['unmapped'][k]:.3f}" for k in ks), "", "")
    for score in manifest["scores"]:
        mark = " *" if manifest["chosen"].get(score["way"]) == score["method"] else ""
        cells = [f"{e['score']:.3f} [{e['low']:.3f}, {e['high']:.3f}]" for e in score["retention"].values()]
        table.add_row(score["way"], score["method"] + mark, *cells, f"{score['cosine']:.3f}", score["verdict"])
    console = table_console(table)
    console.print(table)
    cost = _cost(migration)
    chosen = manifest["chosen"][manifest["way"]]
    notes = [
        f"* chosen on other queries. {chosen} ({manifest['way']}) against the bar of {manifest['bar']:g}: "
        f"{manifest['verdict']}",
        f"re-embedding {manifest['index']['rows']:,} rows would take {cost['reembed_seconds']:,.0f} s here, this takes "
        f"{cost['migrate_seconds']:,.0f} s",
    ]
    if manifest["rewritten"] is not None:
        notes.append(
            f"the new index has {manifest['rewritten']['rows']:,} rows of {manifest['rewritten']['dimensions']} d"
        )
    else:
        notes.append("the index stays as it is; consilience.load_query_adapter opens the map for its queries")
    notes.append(f"{migration.id} in {migration.path}")
    for note in notes:
        console.print(note, markup=False, highlight=False)
