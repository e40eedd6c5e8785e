"""Models of transformers, from a config."""

from __future__ import annotations

import pytest
import torch

from tests.zoo._train import ids, images, train

transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
LANGUAGE = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=32)
    ),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=50, **SMALL)),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
        )
    ),
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=50, num_key_value_heads=1, **SMALL)
    ),
}


@pytest.mark.parametrize("name", LANGUAGE)
@pytest.mark.filterwarnings("ignore")
def test_language_models(name):
    """A language model computes its own loss and trains without a finding."""
    assert train(LANGUAGE[name], lambda net, batch: net(input_ids=batch, labels=batch).loss, ids()).findings == ()


@pytest.mark.filterwarnings("ignore")
def test_vision_transformer():
    """A ViT trains without a finding."""

    def loss(net, batch):
        return net(pixel_values=batch, labels=torch.zeros(len(batch), dtype=torch.long, device=batch.device)).loss

    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=3, **SMALL)
    assert train(lambda: transformers.ViTForImageClassification(config), loss, images()).findings == ()
