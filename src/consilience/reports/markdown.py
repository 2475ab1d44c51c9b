"""A run's report in Markdown: what was done, how well each part went, and the command that does it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.reports.training_log import gauge_label

Json = Mapping[str, Any]


def render_markdown(results: Json, *, plots: Mapping[str, str]) -> str:
    """Write the report of a run.

    Args:
        results: what ``results.json`` holds (recipes/run_report.py).
        plots: addresses of the plots that there are: "training", "spectra", "agreement", "scores".

    Returns:
        CommonMark with tables.
    """
    sections = [
        _summary(results),
        _evaluation(results, plots),
        _bars(results),
        _comparisons(results),
        _geometry(results, plots),
        _teachers(results),
        _frames(results),
        _consensus(results, plots),
        _training(results, plots),
        _corpus(results),
        _export(results),
        _stages(results),
        _reproduce(results),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    r"""Return a Markdown table; the first column is left-aligned, the others right-aligned.

    Example:
        >>> print(markdown_table(["model", "score"], [["a|b", 0.5]]))
        | model | score |
        |:--|--:|
        | a\|b | 0.5 |
    """
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [
        "| " + " | ".join(headers) + " |",
        "|:--" + "|--:" * (len(headers) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in cells),
    ]
    return "\n".join(lines)


def number(value: Any, digits: int = 3) -> str:  # noqa: ANN401 - any JSON number
    """Format a number, or a dash where there is none.

    Example:
        >>> number(0.12345), number(58308864), number(None)
        ('0.123', '58,308,864', '–')
    """
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def task_order(model: Json) -> list[str]:
    """Return a model's tasks as they are reported: those of the mean in their order, then the others.

    Example:
        >>> task_order({"tasks": {"grammar": 1, "sick-r": 1, "stsb-test": 1}, "mean_of": ["stsb-test", "sick-r"]})
        ['stsb-test', 'sick-r', 'grammar']
    """
    return [*model["mean_of"], *(task for task in model["tasks"] if task not in model["mean_of"])]


def _interval(entry: Json) -> str:
    return f"{entry['score']:.4f} [{entry['low']:.3f}, {entry['high']:.3f}]"


def _summary(results: Json) -> str:
    student = _model(results, "student")
    lines = [f"# {results['name']}", ""]
    teachers = ", ".join(teacher["name"] for teacher in results["teachers"])
    lines.append(
        f"A student of **{number(student['parameters'])} parameters**, {student['dimensions']} dimensions, "
        f"distilled from the consensus of {len(results['teachers'])} teachers ({teachers}) on "
        f"{number(results['corpus']['rows'])} texts, seed {results['seed']}."
    )
    count = len(student["mean_of"])
    over = f"{count} tasks" if count > 1 else student["mean_of"][0]
    lines += [
        "",
        f"Mean Spearman over {over}: **{student['mean']:.4f}** "
        f"[{student['mean_low']:.3f}, {student['mean_high']:.3f}].",
    ]
    if results.get("verdict"):
        lines += ["", f"**Verdict:** {results['verdict']['said']}."]
    if results["skipped_tasks"]:
        lines += ["", f"Not measured, because their data isn't here: {', '.join(results['skipped_tasks'])}."]
    return "\n".join(lines)


def _model(results: Json, name: str) -> Json:
    found: Json = next(model for model in results["evaluation"]["models"] if model["model"] == name)
    return found


def _speed(found: Json | None) -> str:
    if found is None:
        return number(None)
    return f"{number(found['median'], 0)} [{number(found['low'], 0)}, {number(found['high'], 0)}]"


def _evaluation(results: Json, plots: Mapping[str, str]) -> str:
    models = results["evaluation"]["models"]
    tasks = task_order(models[0])
    rows = [[task, *(_interval(model["tasks"][task]) for model in models)] for task in tasks]
    rows.append(
        [
            f"**mean of {len(models[0]['mean_of'])}**",
            *(f"**{m['mean']:.4f}** [{m['mean_low']:.3f}, {m['mean_high']:.3f}]" for m in models),
        ]
    )
    rows += [
        [f"{task} (selection)", *(_interval(model["selection"][task]) for model in models)]
        for task in models[0]["selection"]
    ]
    rows.append(["parameters", *(number(model["parameters"]) for model in models)])
    rows.append(["dimensions", *(number(model["dimensions"]) for model in models)])
    rows.append(["sentences/s", *(_speed(model["sentences_per_second"]) for model in models)])
    text = (
        "## Capability\n\nSpearman of cosine with 95% bootstrap intervals over the pairs. A student is one seed: the "
        "intervals don't cover how a retrained student would vary."
    )
    if models[0]["selection"]:
        text += " STS-B dev is for choosing between models, never part of the mean."
    return "\n\n".join([text, markdown_table(["task", *(m["model"] for m in models)], rows), *_image(plots, "scores")])


def _image(plots: Mapping[str, str], name: str) -> list[str]:
    titles = {
        "scores": "Task scores with intervals",
        "spectra": "Spectrum of teachers, consensus and student",
        "agreement": "Agreement between teachers",
        "training": "Training curves",
    }
    return [f"![{titles[name]}]({plots[name]})"] if name in plots else []


def _bars(results: Json) -> str:
    bars = results.get("bars") or []
    if not bars:
        return ""
    rows = [[bar["what"], _bar_value(bar["seen"]), _bar_value(bar["ours"]), _bar(bar), bar["verdict"]] for bar in bars]
    return (
        "### Bars\n\nNumbers that the recipe names, seen elsewhere and written down before the run, beside this "
        f"run's.\n\n{markdown_table(['what', 'seen', 'ours', 'bar', 'verdict'], rows)}"
    )


def _bar_value(value: float | None) -> str:
    """Format by size: scores with four decimals, ranks and rates with one."""
    return "–" if value is None else f"{value:.4f}" if abs(value) < 2 else f"{value:,.1f}"


def _bar(bar: Json) -> str:
    if bar["at_least"] is not None:
        return f"≥ {_bar_value(bar['at_least'])}"
    return f"± {bar['within']:g}" if bar["within"] is not None else ""


def _comparisons(results: Json) -> str:
    pairs = [pair for pair in results["evaluation"]["comparisons"] if "student" in (pair["first"], pair["second"])]
    pairs = [pair for pair in pairs if pair["task"] == "mean"]
    if not pairs:
        return ""
    rows = [
        [
            f"{pair['first']} − {pair['second']}",
            f"{pair['difference']:+.4f} [{pair['low']:+.3f}, {pair['high']:+.3f}]",
            f"{pair['p_value']:.3f}",
        ]
        for pair in pairs
    ]
    return (
        "### Paired comparisons of the mean\n\nThe same pairs are resampled for both models; two-sided p, not "
        f"corrected for their number.\n\n{markdown_table(['models', 'difference', 'p'], rows)}"
    )


def _geometry(results: Json, plots: Mapping[str, str]) -> str:
    models = results["evaluation"]["models"]
    rows = [
        [
            model["model"],
            number(float(model["geometry"]["effective_rank"]), 1),
            number(float(model["geometry"]["entropy_rank"]), 1),
            number(float(model["geometry"]["spread_cv"])),
            number(float(model["geometry"]["self_cosine"])),
        ]
        for model in models
    ]
    text = (
        f"## Geometry\n\nOn {models[0]['geometry']['sample']}. Effective rank is the participation ratio of the "
        "covariance; spread CV is read beside it, never alone."
    )
    found = ["model", "effective rank", "entropy rank", "spread CV", "self-cosine"]
    spectrum = _image(plots, "spectra")
    caption = [f"*Spectra of {number(results['spectra']['rows'])} corpus rows, the same for every model.*"] * len(
        spectrum
    )
    return "\n\n".join([text, markdown_table(found, rows), *spectrum, *caption])


def _teachers(results: Json) -> str:
    rows = [
        [
            teacher["name"] + (" (reference)" if teacher["reference"] else ""),
            f"`{teacher['spec']}`",
            number(teacher["dimensions"]),
            teacher["licence"] or "unknown",
            number(teacher["rows_per_second"], 0),
            teacher["bank"],
        ]
        for teacher in results["teachers"]
    ]
    headers = ["teacher", "spec", "dimensions", "licence", "texts/s", "bank"]
    return f"## Teachers\n\n{markdown_table(headers, rows)}"


def _frames(results: Json) -> str:
    frames = results["frames"]
    rows = []
    for fit in frames["fits"]:
        rows.append(
            [
                fit["teacher"],
                number(fit["rows_per_dimension"], 1),
                f"{number(fit['in_sample_cosine'])} / {number(fit['out_of_sample_cosine'])}",
                f"{number(fit['in_sample_recall'])} / {number(fit['out_of_sample_recall'])}",
                number(fit["chance_multiple"], 0),
                number(fit["retention"], 2),
                f"{number(fit['null_cosine'])} / {number(fit['null_recall'])}",
                fit["verdict"],
            ]
        )
    reasons = [f"* {fit['teacher']}: {reason}" for fit in frames["fits"] for reason in fit["reasons"]]
    gallery = next((fit["gallery"] for fit in frames["fits"]), None)
    text = (
        f"## Alignment into the frame of {frames['reference']}\n\nMethod {frames['method']}, frame `{frames['id']}`. "
        f"Cosine and R@1 are in sample / held out, in a gallery of {number(gallery)}; the null is the same map with "
        "shuffled pairs (cosine / R@1)."
    )
    headers = ["teacher", "N/d", "cosine", "R@1", "× chance", "retention", "null", "verdict"]
    return "\n\n".join([text, markdown_table(headers, rows), *(["\n".join(reasons)] if reasons else [])])


def _consensus(results: Json, plots: Mapping[str, str]) -> str:
    consensus = results["consensus"]
    rows = [
        [
            entry["label"],
            number(float(entry["weight"])),
            number(entry["agreement"]["mean"]),
            number(entry.get("agreement_with_others", {}).get("mean")),
            number(float(entry["effective_rank"]["participation"]), 1),
            number(float(entry["self_cosine"])),
        ]
        for entry in consensus["teachers"]
    ]
    target = consensus["target"]
    rank, cosine = float(target["effective_rank"]["participation"]), float(target["self_cosine"])
    rows.append(["**consensus**", "", "", "", f"**{rank:.1f}**", f"**{cosine:.3f}**"])
    sample = consensus["sample"]
    kind = "held-out rows" if sample["held_out"] else "rows, some of which the maps were fit to"
    headers = ["aligned teacher", "weight", "agreement", "with the others", "effective rank", "self-cosine"]
    norm = consensus["centroid_norm"]
    spread = ", ".join(f"{key} {number(float(norm[key]))}" for key in ("p01", "p05", "p50", "p95", "p99"))
    parts = [
        f"## Consensus\n\nBefore any training, on {number(sample['rows'])} {kind}. Agreement is the mean cosine "
        "of the aligned teacher to the consensus, and to the consensus of the others.",
        markdown_table(headers, rows),
        f"Norm of the centroid before normalisation (1: all teachers agree on the row): {spread}.",
        *_image(plots, "agreement"),
    ]
    return "\n\n".join(parts)


def _training(results: Json, plots: Mapping[str, str]) -> str:
    manifest, timing = results["training"]["manifest"], results["training"]["timing"]
    done = manifest["training"]
    budget = next((f"{key} {done[key]:g}" for key in ("steps", "epochs", "minutes") if done.get(key) is not None), "–")
    config = manifest["config"]
    attempts = timing.get("attempts", [])
    last = attempts[-1] if attempts else {"seconds": None, "rows_per_second": None}
    facts = [
        (
            "student",
            f"{manifest['preset']}: {config['layers']} layers x {config['hidden']}, "
            f"at most {manifest['max_length']} tokens",
        ),
        ("objective", done["objective"]),
        (
            "optimiser",
            f"Adam, peak learning rate {done['lr']:g}, {done['batch_rows']} texts a step, {done['precision']}",
        ),
        ("budget", budget),
        ("steps", number(done["steps_done"])),
        ("texts seen", number(done["rows_seen"])),
        ("tokens seen", number(done["tokens_seen"])),
        ("padding fraction", f"{done['padding']:.2%}"),
        ("texts/s", number(last["rows_per_second"], 0)),
        ("seconds" if len(attempts) < 2 else "seconds of the last attempt", number(last["seconds"], 1)),
        ("attempts", number(len(attempts))),
    ]
    measured = sorted(manifest["gauges"].items(), key=lambda item: _natural(item[0]))
    gauges = [[gauge_label(name), number(float(value))] for name, value in measured]
    parts = [
        f"## Training\n\n{markdown_table(['', 'value'], facts)}",
        f"### Mimicry\n\nThe student against its target on {number(done['held_out_rows'])} texts that it never "
        "trained on. How near it is to its target; not what it can do, which is above.",
        markdown_table(["gauge", "value"], gauges),
        *_image(plots, "training"),
    ]
    return "\n\n".join(parts)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key by which numbers inside names count as numbers."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in name.split("_")]


def _corpus(results: Json) -> str:
    corpus = results["corpus"]
    report = corpus["report"]
    rows = [
        [name, number(lengths["mean"], 1), number(lengths["p50"]), number(lengths["p99"]), number(lengths["max"])]
        for name in ("characters", "words", "tokens")
        if (lengths := report.get(name))
    ]
    counts = ", ".join(
        f"{number(report[key])} {key}" for key in ("duplicates", "empties", "undecodable", "nul", "too_long")
    )
    source = ", ".join(f"{key} {value}" for key, value in corpus["source"].items() if value not in (None, {}, []))
    return (
        f"## Corpus\n\n{source}: {number(corpus['rows'])} rows, {counts.replace('_', ' ')}. Fingerprint "
        f"`{corpus['fingerprint'][:16]}`.\n\n{markdown_table(['', 'mean', 'p50', 'p99', 'max'], rows)}"
    )


def _export(results: Json) -> str:
    export = results["export"]
    text = f"## Export\n\nIn `{export['folder']}`: {', '.join(export['formats'])}."
    parity = export["parity"]
    rows = [[form, f"{value:.1e}"] for form, value in parity["max_abs_difference"].items()]
    return (
        f"{text} {export['bytes'] / 1e6:,.1f} MB.\n\nLargest difference of any coordinate from the trained student, "
        f"over {parity['probe_texts']} texts in fp32 (allowed: {parity['tolerance']:.0e}):\n\n"
        f"{markdown_table(['form', 'difference'], rows)}"
    )


def _stages(results: Json) -> str:
    rows = [
        [stage["stage"], stage["status"], number(stage["seconds"], 1), f"`{stage['id']}`"]
        for stage in results["stages"]
    ]
    return f"## Stages\n\n{markdown_table(['stage', 'status', 'seconds', 'artefact'], rows)}"


def _reproduce(results: Json) -> str:
    environment = ", ".join(f"{name} {value}" for name, value in results["environment"].items())
    return (
        f"## Reproduce\n\n```\n{results['command']}\n```\n\nSeed {results['seed']}; {environment}. Everything above is "
        "in `results.json`; the recipe as it was run, with its settings, is there too."
    )
