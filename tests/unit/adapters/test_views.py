import pytest
import torch

from consilience.adapters.views import require_two_views, same_texts
from consilience.core.errors import InputError, ShapeError


def test_one_view_of_one_forward_pass_is_refused():
    """The law's guard: a contrastive pair of identical storage, or of identical inputs."""
    embeddings = torch.randn(4, 8)
    with pytest.raises(InputError, match="share their memory"):
        require_two_views(embeddings, embeddings)
    with pytest.raises(InputError, match="are equal in every row"):
        require_two_views(embeddings, embeddings.clone())
    ids = torch.arange(12).reshape(3, 4)
    with pytest.raises(InputError, match="batch 3: the two views"):
        require_two_views(ids, ids.clone(), where="batch 3")


def test_two_halves_of_one_batch_are_two_views():
    both = torch.randn(8, 3)
    require_two_views(both[:4], both[4:])
    require_two_views(both[0::2], both[1::2])
    require_two_views(torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64))  # other lengths


def test_sides_that_don_t_fit():
    with pytest.raises(ShapeError, match="got 2 and 3"):
        require_two_views(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(ShapeError, match="at least 1"):
        require_two_views(torch.zeros(0, 3), torch.zeros(0, 3))
    with pytest.raises(ShapeError, match="got 1 and 2"):
        same_texts(["a"], ["a", "b"])


def test_pairs_that_teach_nothing():
    assert same_texts(["A cat", "dogs", " x  y "], ["a CAT", "a dog", "X y"]) == [0, 2]
