"""Translates texts with checkpoints of transformers, which needs PyTorch.

    python run_transformers.py TEXTS.json FOLDER FOLDER ...

Writes answers.json to each folder: the classes, the hypotheses by the generation
config, their scores, and the logits of the first text's best translation.
"""

import json
import sys
import warnings

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def answers_of(folder, texts):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, info = AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True
    )
    model.eval()
    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        found = model.generate(
            **inputs, return_dict_in_generate=True, output_scores=True
        )
        best = found.sequences[0]
        best = best[None, best != model.config.pad_token_id]
        first = {name: x[:1] for name, x in inputs.items()}
        logits = model(**first, decoder_input_ids=best).logits
    scores = getattr(found, "sequences_scores", None)
    return {
        "classes": [type(model).__name__, type(tokenizer).__name__],
        "problems": [*map(str, [*info["missing_keys"], *info["unexpected_keys"]])],
        "source_ids": inputs["input_ids"].tolist(),
        "ids": found.sequences.tolist(),
        "texts": tokenizer.batch_decode(found.sequences, skip_special_tokens=True),
        "scores": None if scores is None else scores.tolist(),
        "target_ids": best.tolist(),
        "logits": logits.tolist(),
    }


def main(texts_path, *folders):
    with open(texts_path, encoding="utf-8") as file:
        texts = json.load(file)
    for folder in folders:
        answers = answers_of(folder, texts)
        with open(f"{folder}/answers.json", "w", encoding="utf-8") as file:
            json.dump(answers, file)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
