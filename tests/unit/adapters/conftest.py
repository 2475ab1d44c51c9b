from collections.abc import Callable

import pytest
import torch
from torch import nn

from consilience.adapters.anchor import Anchor, AnchorConfig
from consilience.adapters.library import AnchorLibrary

WIDTH, BLOCKS = 32, 2


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build_bert(seed: int = 0, layers: int = BLOCKS, **settings: object) -> nn.Module:
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    sizes = {"vocab_size": 97, "hidden_size": WIDTH, "num_hidden_layers": layers, "num_attention_heads": 4}
    config = BertConfig(**{**sizes, "intermediate_size": 48, "max_position_embeddings": 64, **settings})
    return BertModel(config, add_pooling_layer=False).eval()


@pytest.fixture
def make_bert() -> Callable[..., nn.Module]:
    return build_bert


@pytest.fixture
def make_library() -> Callable[..., AnchorLibrary]:
    """Libraries whose anchors do something: a zero last layer would hide every mistake."""

    def make(*names: str, width: int = WIDTH, blocks: int = BLOCKS, hidden: int = 24) -> AnchorLibrary:
        library = AnchorLibrary(width, blocks)
        for number, name in enumerate(names or ("equiv", "simplify", "para")):
            config = AnchorConfig(hidden=hidden, gate=0.0)
            library.add(name, Anchor(width, blocks, config, seed=number, random_output=True))
        return library

    return make


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    ids = torch.arange(1, 31).reshape(3, 10) * 5 % 97
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    mask[2, 4:] = 0
    return {"input_ids": ids, "attention_mask": mask}
