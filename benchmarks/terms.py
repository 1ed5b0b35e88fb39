"""What required terms cost and gain: a constrained beam beside an unconstrained one.

    python benchmarks/terms.py TRANSLATOR SOURCE REFERENCE
    python benchmarks/terms.py TRANSLATOR val.en.gz val.de.gz --beam-width 8

TRANSLATOR is the folder of a saved `Translator`. For each sentence, phrases are drawn
from its reference. Times are of one process without XLA, in turn, the least of some
rounds after a first; "nothing required" is a constrained beam without phrases.
"""

import argparse
import random
import time

import numpy as np
import sacrebleu

import keras_transformer as kt
from keras_transformer.text_files import read_lines
from keras_transformer.translator.terms import continuation_ids

SETTINGS = [(1, 1), (1, 2), (2, 3)]  # phrases of a sentence, most words of each


def drawn(reference, count, most_words, rng):
    words = [word.strip(',.;:!?"()') for word in reference.split()]
    phrases = []
    for _ in range(count):
        length = min(rng.randint(1, most_words), len(words))
        first = rng.randint(0, len(words) - length)
        phrases.append(" ".join(words[first : first + length]))
    return [phrase for phrase in phrases if phrase]


def main(arguments):
    translator = kt.Translator.load(arguments.translator)
    translator.model.compile(jit_compile=False)
    sources, references = (
        list(read_lines(file))[: arguments.lines]
        for file in (arguments.source, arguments.reference)
    )
    tokenizer = translator.target_tokenizer
    source_ids = translator.encode(sources)[0].numpy()
    width, rng = arguments.beam_width, random.Random(1)

    def constrained(required):
        continuations = continuation_ids(tokenizer)
        return kt.decoding.ConstrainedBeamSearch(
            width, required, continuation_ids=continuations
        )

    searches = {
        "unconstrained": (kt.decoding.BeamSearch(width), None),
        "nothing required": (constrained([[] for _ in sources]), None),
    }
    for count, most_words in SETTINGS:
        phrases = [drawn(x, count, most_words, rng) for x in references]
        required = [
            [tokenizer([x])[0].numpy().tolist() for x in row] for row in phrases
        ]
        num_tokens = np.mean([sum(map(len, row)) for row in required])
        name = f"{count} of 1 to {most_words} words, {num_tokens:.1f} subwords"
        searches[name] = constrained(required), phrases
    seconds = {name: [] for name in searches}
    found = {}
    for _ in range(arguments.rounds + 1):
        for name, (search, _) in searches.items():
            start = time.perf_counter()
            found[name] = translator.model.generate(source_ids, search, 64)
            seconds[name].append(time.perf_counter() - start)
    print(f"{len(sources)} lines, beam width {width}")
    for name, (search, phrases) in searches.items():
        ids = found[name].ids[:, 0]
        texts = [x.decode() for x in translator.decode(ids, search).numpy()]
        bleu = sacrebleu.corpus_bleu(texts, [references]).score
        phrases = phrases or [[]] * len(texts)
        pairs = [
            (x, text) for row, text in zip(phrases, texts, strict=True) for x in row
        ]
        missing = sum(x not in text for x, text in pairs)
        least = min(seconds[name][1:])
        length = np.sum(ids != translator.model.pad_id, axis=1).mean()
        print(
            f"{name:34}{least:7.1f} s  BLEU {bleu:5.2f}  {length:5.1f} subwords  "
            f"{missing} of {len(pairs)} phrases missing"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("translator")
    parser.add_argument("source")
    parser.add_argument("reference")
    parser.add_argument("--beam-width", type=int, default=4)
    parser.add_argument("--lines", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    main(parser.parse_args())
