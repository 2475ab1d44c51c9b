"""The page of objectives has the registry's own tables."""

from pathlib import Path

from consilience.objectives.catalogue import catalogue_tables
from consilience.objectives.spread import SIMPLICES, isotropic_cv

PAGE = Path(__file__).parents[3] / "docs" / "objectives.md"


def test_the_page_has_the_registrys_tables():
    page = PAGE.read_text(encoding="utf-8")
    for table in catalogue_tables():
        assert f"\n\n{table}\n\n" in page, f"docs/objectives.md differs from the registry; its table should be\n{table}"


def test_the_numbers_in_the_tables_are_the_codes():
    terms = catalogue_tables()[0]
    assert f"{SIMPLICES} simplices" in terms
    assert f"isotropic rows, {isotropic_cv(16):.3f}" in terms
