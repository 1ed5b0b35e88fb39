"""Translating real text by a trained model: ours beside CTranslate2 at its best.

    python benchmarks/real_text.py TRANSLATOR val.en.gz test.en.gz [--works greedy beam]

TRANSLATOR is the folder of a saved `Translator`. The first `--captions` lines of the
files are translated greedily and with a beam of 4:

- in one call: by `Translator.translate`, and by CTranslate2;
- in requests of 32 captions by four threads, as from a server's clients: by the
  SavedModel that `export` writes, and by CTranslate2.

Each system has a process of its own and gets a turn in each round, after one that is
not timed. CTranslate2 first tries numbers of workers, threads and captions in a batch,
and takes the fastest. The table has medians of the rounds, from text to text; CPU
seconds are those of all threads. `--exports` names a folder that keeps what is
exported, for the next run.
"""

import argparse
import functools
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CLIENTS, CAPTIONS_PER_REQUEST = 4, 32
TRIED = 500  # captions that CTranslate2's settings are tried on
BEAM_WIDTHS = {"greedy": 1, "beam": 4}
SYSTEMS = "ours", "ctranslate2", "saved_model", "ctranslate2-requests"


def search_of(work):
    import keras_transformer as kt

    width = BEAM_WIDTHS[work]
    return kt.decoding.GreedySearch() if width == 1 else kt.decoding.BeamSearch(width)


def export(translator, folder, work):
    """Writes both exports of a search."""
    import keras_transformer as kt

    translator = kt.Translator.load(translator)
    for format in ("ctranslate2", "saved_model"):
        translator.export(folder / format, search_of(work), format=format)


def in_requests(translate, texts):
    """Translates by several clients, each of which waits for its answers."""
    size = CAPTIONS_PER_REQUEST
    requests = [texts[i : i + size] for i in range(0, len(texts), size)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(itertools.chain(*clients.map(translate, requests)))


def ours(translator, folder, texts, work):
    import keras_transformer as kt

    translator, search = kt.Translator.load(translator), search_of(work)
    return lambda: translator.translate(texts, search)


def saved_model(translator, folder, texts, work):
    """The export, in a process without this package."""
    import tensorflow as tf
    import tensorflow_text

    assert tensorflow_text
    start = time.perf_counter()
    loaded = tf.saved_model.load(str(folder / "saved_model"))
    serve = loaded.signatures["serving_default"]
    note(f"loaded in {time.perf_counter() - start:.1f} s")

    def translate(request):
        found = serve(text=tf.constant(request))["translation"].numpy()
        return [text.decode() for text in found]

    for count in (1, CAPTIONS_PER_REQUEST):
        start = time.perf_counter()
        translate(texts[:count])
        note(f"the first call of {count} takes {time.perf_counter() - start:.1f} s")
    return lambda: in_requests(translate, texts)


def ctranslate2(translator, folder, texts, work, requests=False):
    """CTranslate2 with its best settings: the fastest of all that are tried."""
    import ctranslate2
    import sentencepiece

    folder, cores = folder / "ctranslate2", len(os.sched_getaffinity(0))
    settings = json.loads((folder / "translator.json").read_text("utf-8"))
    source, target = (
        sentencepiece.SentencePieceProcessor(str(folder / f"{side}.model"))
        for side in ("source", "target")
    )

    def translate(texts, engine, batch_size):
        found = engine.translate_batch(
            source.encode(texts, out_type=str),
            max_batch_size=batch_size,
            **settings["translate_batch"],
        )
        return target.decode([one.hypotheses[0] for one in found])

    tried = {}
    for threads in sorted({(cores, 1), (1, cores), (1, 1)}):
        inter, intra = threads
        engine = ctranslate2.Translator(
            str(folder), inter_threads=inter, intra_threads=intra
        )
        for batch_size in (16, 32) if requests else (16, 32, 64, 128):
            call = functools.partial(translate, engine=engine, batch_size=batch_size)
            if requests:
                call = functools.partial(in_requests, call)
            call(texts[:TRIED])
            start = time.perf_counter()
            call(texts[:TRIED])
            name = f"{inter} x {intra} threads, batches of {batch_size}"
            tried[name] = time.perf_counter() - start, call
    for name, (seconds, _) in tried.items():
        note(f"{name}: {seconds:.2f} s")
    name = min(tried, key=lambda one: tried[one][0])
    note(f"best: {name}, computes in {engine.compute_type}")
    return functools.partial(tried[name][1], texts)


def note(text):
    print(text, file=sys.stderr, flush=True)


def take_turns(system, *arguments):
    """Works once for each line of stdin, and prints seconds and CPU seconds."""
    known = {"ours": ours, "saved_model": saved_model, "ctranslate2": ctranslate2}
    known["ctranslate2-requests"] = functools.partial(ctranslate2, requests=True)
    work = known[system](*arguments)
    start = time.perf_counter()
    translations = work()
    note(f"the first time takes {time.perf_counter() - start:.1f} s")
    print(json.dumps(translations), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter(), time.process_time()
        work()
        end = time.perf_counter(), time.process_time()
        print(json.dumps([b - a for a, b in zip(start, end, strict=True)]), flush=True)


def compare(options, folder, texts):
    """Prints a table: for each work, the time of each system."""
    print("| work | system | s | CPU s | beside CTranslate2 | equal texts |")
    print("| --- | --- | --: | --: | --: | --: |")
    for work in options.works:
        path = folder / work
        if not path.exists():
            command = [sys.executable, __file__, options.translator, *options.texts]
            subprocess.run([*command, "--export", work, "--exports", path], check=True)
        given = [options.translator, *options.texts, "--captions", str(len(texts))]
        processes = {}
        for system in options.systems:
            turns = ["--turns", system, "--works", work, "--exports", path]
            note(f"{work}, {system}:")
            processes[system] = subprocess.Popen(
                [sys.executable, __file__, *given, *turns],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            processes[system].translations = json.loads(
                processes[system].stdout.readline()
            )
        times = {system: [] for system in processes}
        for _ in range(options.rounds):
            for system, process in processes.items():
                process.stdin.write("\n")
                process.stdin.flush()
                times[system].append(json.loads(process.stdout.readline()))
        for process in processes.values():
            process.stdin.close()
            process.wait()
        for system, process in processes.items():
            wall, cpu = (statistics.median(x) for x in zip(*times[system], strict=True))
            peer = "ctranslate2-requests" if "_" in system else "ctranslate2"
            ratio = equal = ""
            if peer in processes and not system.startswith("ctranslate2"):
                pairs = zip(times[system], times[peer], strict=True)
                ratios = [one[0] / other[0] for one, other in pairs]
                ratio = f"{statistics.median(ratios):.2f} "
                ratio += f"({min(ratios):.2f} to {max(ratios):.2f})"
                both = process.translations, processes[peer].translations
                equal = sum(one == other for one, other in zip(*both, strict=True))
            cells = work, system, f"{wall:.2f}", f"{cpu:.2f}", ratio, equal
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("translator", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--captions", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", nargs="+", default=[*BEAM_WIDTHS])
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--exports", type=Path)
    parser.add_argument("--export", choices=BEAM_WIDTHS, help=argparse.SUPPRESS)
    parser.add_argument("--turns", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.export:
        export(options.translator, options.exports, options.export)
        return
    texts = []
    for path in options.texts:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            texts += file.read().splitlines()
    texts = texts[: options.captions]
    if options.turns:
        (work,) = options.works
        take_turns(options.turns, options.translator, options.exports, texts, work)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(options, options.exports or Path(folder), texts)


if __name__ == "__main__":
    main()
