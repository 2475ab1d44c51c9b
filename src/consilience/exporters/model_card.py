"""The model card: metadata, usage that works, teachers and licences, data, training, results, parity, command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from consilience.exporters.card_usage import USAGE_ST, onnx_usage
from consilience.exporters.licences import LicenceVerdict, judge_licences

_UNLISTED = {"kind", "schema_version", "files", "id", "job", "target.teacher", "target.extra"}

# Of an absolute path: alone, after a spec's backend, or as the value of an option; a URL's "//" isn't one.
_FOLDERS = re.compile(r"(^|[:=])/(?!/)[^?#&]*/")


def render_card(
    *,
    title: str,
    manifest: Mapping[str, Any],
    teachers: Mapping[str, str | None],
    dimensions: int,
    parameters: int,
    rotation: Mapping[str, Any] | None = None,
    max_length: int,
    padding: tuple[int, str],
    formats: Sequence[str],
    parity: Mapping[str, Any],
    results: Mapping[str, Any] | None,
    command: str,
    usage: Sequence[str] | None = None,
) -> str:
    """Write the card as Markdown with YAML metadata.

    Args:
        title: heading.
        manifest: the student's manifest.
        teachers: licence, or None when unknown, by teacher spec.
        dimensions: width of the embedding.
        parameters: of the student.
        rotation: manifest of the rotation behind the head, or None.
        max_length: tokens.
        padding: id and text of the padding token.
        formats: what the folder holds.
        parity: as found by :func:`consilience.exporters.parity.check_parity`.
        results: as ``consilience evaluate --json`` printed, or None.
        command: what made the folder.
        usage: sections on use; by default those on sentence-transformers and ONNX.
    """
    verdict = judge_licences(teachers)
    student_id = str(manifest.get("id", "not stored"))
    sections = [
        _metadata(verdict, teachers, _own_result(results, student_id), title, formats),
        f"# {title}\n",
        f"A sentence embedding model of {parameters:,} parameters and {dimensions} dimensions, distilled by "
        f"Consilience from the agreement of {len(teachers) or 'its'} teacher{'' if len(teachers) == 1 else 's'}. "
        f"Texts are cut to {max_length} tokens. Embeddings have length 1; compare them by cosine or dot product.\n",
        "## Usage\n",
        *_rotation_note(rotation),
        *(_default_usage(formats, max_length, padding) if usage is None else usage),
        "## Teachers and licence\n",
        _teachers_table(teachers),
        verdict.statement + "\n",
        "## Data and training\n",
        _settings_table(manifest),
        "## Results\n",
        _results(results, student_id),
        "## Frame\n",
        _frame(manifest if rotation is None else {"frame": rotation["target"]["frame"]}),
        "## Parity of the exported forms\n",
        _parity(parity),
        "## Made with\n",
        f"```\n{command}\n```\n\nStudent `{student_id}`.\n",
    ]
    return "\n".join(sections)


def _metadata(
    verdict: LicenceVerdict,
    teachers: Mapping[str, str | None],
    own: Mapping[str, Any] | None,
    title: str,
    formats: Sequence[str],
) -> str:
    # No language: the corpus' isn't known.
    library = "sentence-transformers" if "sentence-transformers" in formats else "onnx"
    lines = [
        "---",
        f"library_name: {library}",
        "pipeline_tag: sentence-similarity",
        f"license: {verdict.metadata}",
    ]
    if verdict.metadata == "other":
        lines.append(f"license_name: {_quoted('bound-by-teachers-' + verdict.strictest.replace(' ', '-'))}")
    lines += ["tags:", *(f"- {name}" for name in formats)]
    lines += ["- sentence-similarity", "- feature-extraction", "- distillation", "- consilience"]
    if teachers:
        lines.append("teachers:")
        lines += [f"- {_quoted(teacher)}" for teacher in teachers]
    if own is not None:
        lines += ["model-index:", f"- name: {_quoted(title)}", "  results:"]
        for task, score in own["tasks"].items():
            lines += [
                "  - task: {type: sentence-similarity, name: Semantic Textual Similarity}",
                f"    dataset: {{type: {_quoted(task)}, name: {_quoted(task)}}}",
                f"    metrics: [{{type: cosine_spearman, value: {score['score']:.4f}}}]",
            ]
    return "\n".join([*lines, "---", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a YAML string


def _own_result(results: Mapping[str, Any] | None, student_id: str) -> Mapping[str, Any] | None:
    for model in (results or {}).get("models", ()):
        if model.get("identity", {}).get("student") == student_id:
            found: Mapping[str, Any] = model
            return found
    return None


def _rotation_note(rotation: Mapping[str, Any] | None) -> list[str]:
    if rotation is None:
        return []
    report, target = rotation["report"], rotation["target"]
    note = " The student was trained on these texts." if rotation.get("trained_on_these_texts") else ""
    return [
        f"A frozen rotation, fitted on {rotation['rows']['fit']:,} pairs, carries the embedding into the frame of "
        f"`{_cell(target['label'])}` (`{target['frame']}`): on {rotation['rows']['held_out']:,} other texts the "
        "cosine to its "
        f"vectors is {report['after']['cosine']:.3f}, R@1 {report['after']['recall_at_1']:.3f} of "
        f"{report['gallery']:,}.{note}\n"
    ]


def _default_usage(formats: Sequence[str], max_length: int, padding: tuple[int, str]) -> list[str]:
    parts = [USAGE_ST] if "sentence-transformers" in formats else []
    return [*parts, onnx_usage(max_length, padding)] if "onnx" in formats else parts


def _teachers_table(teachers: Mapping[str, str | None]) -> str:
    if not teachers:
        return "The target's teachers aren't recorded in the student's manifest.\n"
    rows = [f"| `{_cell(name)}` | {licence or 'unknown'} |" for name, licence in teachers.items()]
    return "\n".join(["| teacher | licence |", "|---|---|", *rows, ""])


def _settings_table(manifest: Mapping[str, Any]) -> str:
    rows = [f"| {key} | {_cell(value)} |" for key, value in _flatten(manifest, "") if value not in (None, {}, [])]
    return "\n".join(["| setting | value |", "|---|---|", *rows, ""]) if rows else "Not recorded.\n"


def _flatten(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, entry in value.items():
        if prefix + key in _UNLISTED:
            continue
        if isinstance(entry, Mapping):
            yield from _flatten(entry, f"{prefix}{key}.")
        else:
            yield prefix + key, entry


def _cell(value: Any) -> str:  # noqa: ANN401 - any JSON value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _FOLDERS.sub(r"\1", text)  # a card is public: no folders of the machine that made it
    return " ".join(text.split()).replace("|", "\\|")


def _results(results: Mapping[str, Any] | None, student_id: str) -> str:
    models = (results or {}).get("models") or []
    if not models:
        return "Not evaluated when it was exported. Run `consilience evaluate` on this folder.\n"
    names = [
        "**this model**" if model.get("identity", {}).get("student") == student_id else f"`{_cell(model['model'])}`"
        for model in models
    ]
    lines = ["Spearman of cosine with 95% bootstrap intervals (pairs resampled).", ""]
    lines += [f"| task | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for task in models[0]["tasks"]:
        lines.append(f"| {_cell(task)} | {' | '.join(_score(model['tasks'].get(task)) for model in models)} |")
    means = ({"score": model["mean"], "low": model.get("mean_low"), "high": model.get("mean_high")} for model in models)
    count = len(models[0].get("mean_of", models[0]["tasks"]))
    lines.append(f"| mean of {count} | {' | '.join(_score(mean) for mean in means)} |")
    lines.append(f"| effective rank | {' | '.join(_number(m['geometry'].get('effective_rank'), 1) for m in models)} |")
    lines.append(f"| self-cosine | {' | '.join(_number(m['geometry'].get('self_cosine'), 3) for m in models)} |")
    lines += ["", "STS-B dev is the selection task and isn't part of the mean. This model is one training seed.", ""]
    return "\n".join(lines)


def _score(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return "-"
    if score.get("low") is None:
        return _number(score["score"], 4)
    return f"{score['score']:.4f} [{score['low']:.3f}, {score['high']:.3f}]"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _frame(manifest: Mapping[str, Any]) -> str:
    frame = manifest.get("frame", "not recorded")
    return (
        f"Embeddings are in the frame `{frame}`. They can be compared with one another, and with vectors that name "
        "the same frame; never with another model's vectors unless a rotation between the two frames was fitted and "
        "checked on held-out rows.\n"
    )


def _parity(parity: Mapping[str, Any]) -> str:
    rows = [f"| {form} | {value:.1e} |" for form, value in parity.get("max_abs_difference", {}).items()]
    head = f"Largest absolute difference from the student on {parity.get('probe_texts')} fixed texts (fp32, CPU); "
    head += f"at most {parity.get('tolerance'):.0e} is allowed."
    lines = [head, "", "| form | difference |", "|---|---|", *rows, ""]
    if "int8" in parity:
        int8 = parity["int8"]
        lines += [
            f"The int8 file's cosine to the student on these texts: {int8['min_cosine']:.4f} at least (allowed: "
            f"{int8['least_allowed']}), {int8['mean_cosine']:.4f} in the mean.",
            "",
        ]
    return "\n".join(lines)
