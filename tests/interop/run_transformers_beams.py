"""Writes a small GPT-2 and BART with random weights, and the beams that they give.

    python run_transformers_beams.py FOLDER LETTERS.json

Needs PyTorch and transformers. FOLDER/gpt2 and FOLDER/bart get a checkpoint that
KerasHub reads, and answers.json: prompts, hypotheses and their scores.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
)

BEAMS = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 1.0}


def gpt2():
    sizes = {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": 9, "eos_token_id": 9, "pad_token_id": 9}
    config = GPT2Config(vocab_size=10, **sizes, **ends, initializer_range=0.5)
    return GPT2LMHeadModel(config), ["<|endoftext|>"], []


def bart():
    sizes = {"d_model": 16, "max_position_embeddings": 16, "init_std": 0.5}
    for side in ("encoder", "decoder"):
        part = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
        sizes |= {f"{side}_{name}": value for name, value in part.items()}
    config = BartConfig(vocab_size=13, **sizes, forced_eos_token_id=None)
    return BartForConditionalGeneration(config), [], ["<s>", "<pad>", "</s>", "<mask>"]


def main(folder, letters):
    torch.manual_seed(7)
    letters = json.loads(Path(letters).read_text())
    for make in (gpt2, bart):
        model, last, first = make()
        path = Path(folder) / make.__name__
        model.eval().save_pretrained(path)
        # transformers no longer writes a name that KerasHub reads.
        config = json.loads((path / "config.json").read_text())
        config["num_hidden_layers"] = 2
        (path / "config.json").write_text(json.dumps(config))
        tokens = {token: i for i, token in enumerate([*first, *letters, *last])}
        (path / "vocab.json").write_text(json.dumps(tokens))
        (path / "merges.txt").write_text("Ġ a\nĠ b\nĠ c\nĠ d\n")
        source = torch.tensor([[0, 5, 7, 6, 2], [0, 8, 8, 4, 2], [0, 4, 11, 5, 2]])
        prompt = torch.tensor([[1, 4], [5, 2], [7, 7]])
        inputs = {"input_ids": prompt}
        if make is bart:
            prompt = torch.tensor([[2, 0]] * 3)
            inputs = {"input_ids": source, "decoder_input_ids": prompt}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        found = model.generate(
            **inputs,
            **BEAMS,
            max_length=10,
            return_dict_in_generate=True,
            output_scores=True,
        )
        answers = {
            "source": source.tolist(),
            "prompt": prompt.tolist(),
            "ids": found.sequences.tolist(),
            "scores": found.sequences_scores.tolist(),
        }
        (path / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
