import collections
import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from interop.random_translator import TEXTS, make_translator

import keras_transformer as kt

TEXTS = TEXTS[:-1]  # the last one is too long, which would be warned of
GREEDY = kt.decoding.GreedySearch()


@pytest.fixture(scope="module")
def translator():
    return make_translator()


@pytest.fixture(scope="module")
def export(translator, tmp_path_factory):
    pytest.importorskip("ctranslate2")
    path = tmp_path_factory.mktemp("batches") / "export"
    return translator.export(path, GREEDY, 13, format="ctranslate2")


@pytest.mark.slow
def test_a_copy_from_another_process_translates_as_the_translator(translator, tmp_path):
    translator.save(tmp_path / "translator")
    batches = kt.serving.BatchTranslator(tmp_path / "translator", search=GREEDY)
    expected = translator.translate(TEXTS[:3], GREEDY)
    assert batches(np.array(TEXTS[:3], object)) == expected
    pickled = pickle.dumps(batches)  # without the model that it has loaded
    assert len(pickled) < 2000
    assert pickle.loads(pickled)(TEXTS[:3]) == expected


def test_ctranslate2_translates_what_was_exported(translator, export):
    batches = kt.serving.BatchTranslator(export, engine="ctranslate2")
    assert batches(TEXTS) == translator.translate(TEXTS, GREEDY, max_length=13)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"engine": "marian"}, ValueError, "`engine` must be 'tensorflow' or"),
        ({"path": "nowhere"}, FileNotFoundError, "nowhere is not a folder"),
        (
            {"engine": "ctranslate2", "search": GREEDY},
            ValueError,
            "`search` must be None for CTranslate2",
        ),
    ],
)
def test_what_cannot_be_loaded_is_refused_at_once(settings, error, message, tmp_path):
    with pytest.raises(error, match=message):
        kt.serving.BatchTranslator(**{"path": tmp_path, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "driver"])
def test_a_job_of_ray_loses_and_doubles_no_line(victim, translator, export, tmp_path):
    pytest.importorskip("ray.data")
    lines = {"a.txt": TEXTS * 40, "b.txt": TEXTS[::-1] * 40, "c.txt.gz": TEXTS[:2]}
    (tmp_path / "text").mkdir()
    for name, texts in lines.items():
        opened = gzip.open if name.endswith(".gz") else open
        with opened(tmp_path / "text" / name, "wt") as file:
            file.writelines(f"{text}\n" for text in texts)
    job = Path(__file__).with_name("ray_job.py")
    command = [sys.executable, str(job), str(export), str(tmp_path), victim]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (tmp_path / "killed").exists()
    if victim == "driver":
        assert found.returncode == -9
        found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    rows = [
        json.loads(line)
        for path in (tmp_path / "translated").glob("*.json")
        for line in path.read_text().splitlines()
    ]
    expected = {
        f"{tmp_path / 'text' / name}:{number}": text
        for name, texts in lines.items()
        for number, text in enumerate(texts, start=1)
    }
    assert {row["id"]: row["text"] for row in rows} == expected
    assert set(collections.Counter(row["id"] for row in rows).values()) == {1}
    live = dict(
        zip(TEXTS, translator.translate(TEXTS, GREEDY, max_length=13), strict=True)
    )
    assert all(row["translation"] == live[row["text"]] for row in rows)
