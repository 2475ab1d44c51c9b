"""What a study concludes, on numbers that one can compute by hand."""

import numpy as np
import pytest

from consilience.recipes.study_analysis import (
    MeasuredCell,
    compare,
    compare_all,
    conditions_of,
    holm,
    leader,
    single_against_consensus,
)
from consilience.recipes.study_cells import Cell
from consilience.recipes.study_findings import (
    across_seeds,
    anchor_dial,
    anchor_strength,
    committee_table,
    descent,
    dial_correlations,
    set_point,
)

RESAMPLES = 400


def cell(objective="composite", target="all", seed=0, *, mean=0.5, dev=None, law=None, training=None, noise=0.0):
    """A measured cell whose replicates are its score plus the same draws for every cell, plus its own noise."""
    shared = np.random.default_rng(7).standard_normal(RESAMPLES) * 0.02
    own = np.random.default_rng(seed + 100).standard_normal(RESAMPLES) * noise
    measures = {"mean": mean, "tasks": {}, "selection": {}, "geometry": {"effective_rank": 10.0 + seed}}
    if dev is not None:
        measures["selection"]["stsb-dev"] = {"score": dev}
    if law is not None:
        measures["law"] = {"after": {"cosine": law[0], "recall_at_1": law[1]}}
    facts = {"steps": 10, "rows": 1_000, "parameters": 50, "anchor_strength": 0.3, **(training or {})}
    return MeasuredCell(Cell(objective, target, "micro", seed), facts, measures, {"mean": mean + shared + own})


def test_holm_bounds_the_family():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_condition_is_the_mean_of_its_seeds_and_pairs_share_their_draws():
    a, b = conditions_of(
        [cell(mean=0.6, seed=0), cell(mean=0.62, seed=1), cell("mimicry", mean=0.6), cell("mimicry", seed=1)]
    )
    pair = compare(a, b, "mean")
    assert pair["difference"] == pytest.approx((0.6 + 0.62) / 2 - (0.6 + 0.5) / 2)
    # The draws cancel: without noise of their own, the interval is a point.
    assert pair["low"] == pytest.approx(pair["difference"])
    assert pair["high"] == pytest.approx(pair["difference"])
    assert pair["by_seed"] == {"0": pytest.approx(0.0), "1": pytest.approx(0.12)}
    assert not pair["seeds_agree"]
    assert compare(a, b, "recall_at_1") is None


def test_unequal_cost_is_said():
    a, b, c = conditions_of(
        [cell(), cell("mimicry", training={"rows": 1_010}), cell("infonce", training={"steps": 11})]
    )
    assert compare(a, b, "mean")["equal_cost"]
    assert not compare(a, c, "mean")["equal_cost"]


def test_all_pairs_are_adjusted_for_their_number():
    conditions = conditions_of([cell(name, mean=score, noise=0.01, seed=i) for i, (name, score) in
                                enumerate((("composite", 0.5), ("mimicry", 0.9), ("infonce", 0.501)))])  # fmt: skip
    pairs = {(pair["first"], pair["second"]): pair for pair in compare_all(conditions)}
    assert len(pairs) == 3
    for pair in pairs.values():
        assert pair["family"] == 3
        assert pair["p_holm"] >= pair["p_value"]
    far, near = pairs[conditions[0].name, conditions[1].name], pairs[conditions[0].name, conditions[2].name]
    assert far["p_holm"] < 0.05 < near["p_holm"]


def test_a_failed_cell_is_in_no_condition():
    broken = MeasuredCell(Cell("mimicry", "all", "micro", 0), {}, error="the loss became nan")
    conditions = conditions_of([cell(), broken])
    assert [condition.name for condition in conditions] == ["composite · all · micro"]


def test_selection_reads_stsb_dev_alone():
    conditions = conditions_of([cell(mean=0.9, dev=0.1), cell("mimicry", mean=0.1, dev=0.9)])
    assert leader(conditions).cell.objective == "mimicry"
    assert leader(conditions_of([cell(mean=0.9)])) is None


def test_consensus_meets_the_single_teacher_of_the_same_objective_and_the_best_one():
    cells = [
        cell("mimicry", "minilm", dev=0.7, mean=0.70), cell("infonce", "minilm", dev=0.8, mean=0.75),
        cell("mimicry", "all", dev=0.9, mean=0.80), cell("composite", "all", dev=0.6, mean=0.99),
    ]  # fmt: skip
    found = single_against_consensus(conditions_of(cells), frozenset(["all"]))
    assert [(pair["kind"], round(pair["difference"], 3)) for pair in found] == [
        ("same objective", 0.10),
        ("best of each, by STS-B dev", 0.05),
    ]


def test_set_points_are_refused_where_the_orientation_is_free():
    series = {"target_cosine": [0.0, 0.4, 0.6, 0.7, 0.72]}
    free, tied = conditions_of(
        [cell("affinity", training=series), cell(training=series), cell(training={"target_cosine": [0.0, 0.7]}, seed=1)]
    )
    assert set_point(free)["own"] == "refused"
    assert set_point(free)["still_rising"] is None
    point = set_point(tied)
    assert point["own"] == [0.72, 0.7]
    assert point["own_spread"] == pytest.approx(0.02)
    assert point["still_rising"] == pytest.approx(0.02)  # of the seed with a curve


def test_anchor_strength_is_measured_not_read_off_the_weights():
    first = {"infonce": 4.0, "mimicry": 2.0, "element-mse": 2.0 / 384, "spread": 0.1, "affinity": 3.0}
    assert anchor_strength("mimicry", first) == 1.0
    assert anchor_strength("infonce", first) == 0.0
    assert anchor_strength("composite", first) == pytest.approx(1 / 3)
    assert 0 < anchor_strength("verbatim", first) < 0.002
    assert anchor_strength("affinity", first) == 0.0


def test_the_dial_puts_free_orientations_first_and_then_turns():
    cells = [
        cell("mimicry", law=(0.8, 0.1), training={"anchor_strength": 1.0}),
        cell("composite", law=(0.7, 0.3), training={"anchor_strength": 0.3}),
        cell("infonce", law=(0.5, 0.6), training={"anchor_strength": 0.0}),
        cell("affinity", law=(0.4, 0.9), training={"anchor_strength": 0.0}),
    ]
    dial = anchor_dial(conditions_of(cells))
    assert [entry["objective"] for entry in dial] == ["affinity", "infonce", "composite", "mimicry"]
    found = dial_correlations(dial)
    assert (found["conditions"], found["agreement"], found["recall_at_1_served"]) == (3, 1.0, -1.0)
    assert found["recall_at_1"] is None


def test_spreads_and_the_likeness_of_rotated_seeds():
    rows = np.eye(4)
    a, b = cell(mean=0.5, law=(0.7, 0.1)), cell(mean=0.53, law=(0.69, 0.1), seed=1)
    cells = [
        MeasuredCell(one.cell, one.training, one.measures, {**one.arrays, "rotated": side})
        for one, side in ((a, rows), (b, np.vstack([rows[:2], -rows[2:]])))
    ]
    (entry,) = across_seeds(conditions_of([*cells, cell("mimicry")]))
    assert entry["mean"] == pytest.approx(0.03)
    assert entry["agreement"] == pytest.approx(0.01)
    assert entry["effective_rank"] == 1.0
    assert entry["rotated_cosine"] == 0.0


def test_descent_says_how_much_of_the_fall_was_early():
    terms = {"infonce": [4.0, 2.0, 1.0, 1.0, 1.0], "mimicry": [2.0, 2.0, 2.0, 2.0, 1.95]}
    (condition,) = conditions_of([cell(training={"terms": terms, "term_steps": [1, 11, 21, 31, 41]})])
    found = descent(condition)["terms"]
    assert found["infonce"]["early_share"] == pytest.approx(2 / 3)
    assert found["mimicry"]["early_share"] is None  # it hardly moved


def test_committees_say_whether_the_rank_predicted_the_students():
    facts = {
        name: {
            "dimensions": 8,
            "effective_rank": {"participation": rank, "entropy": 5.0},
            "self_cosine": -rank,
            "agreement": None,
        }
        for name, rank in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    }
    cells = [cell("mimicry", name, mean=score) for name, score in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    table = committee_table(conditions_of(cells), facts)
    rho = {entry["of"]: (entry["rho"], entry["targets"]) for entry in table["predictions"]}
    assert rho == {
        "effective_rank": (1.0, 3),
        "entropy_rank": (None, 3),
        "self_cosine": (-1.0, 3),
        "agreement": (None, 0),
    }
