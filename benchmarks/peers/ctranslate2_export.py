"""Writes our model of a workload for CTranslate2, with a vocabulary of made-up words.

    python -m peers.ctranslate2_export D1 FOLDER

`ctranslate2.py` runs it.
"""

import io
import sys

import sentencepiece
from ours import build
from peers.workloads import WORKLOADS

import keras_transformer as kt


def made_up_words(vocabulary_size):
    """Returns a tokenizer whose vocabulary has exactly that size."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"word{index}" for index in range(vocabulary_size)),
        model_writer=model,
        model_type="word",
        vocab_size=vocabulary_size,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    return kt.text.SubwordTokenizer(model.getvalue())


def main():
    workload, folder = WORKLOADS[sys.argv[1]], sys.argv[2]
    tokenizer = made_up_words(workload.size.vocabulary_size)
    translator = kt.Translator(build(workload), tokenizer)
    translator.export(folder, kt.decoding.GreedySearch(), format="ctranslate2")


if __name__ == "__main__":
    main()
