import gzip
import os
from pathlib import Path

import pytest

from keras_transformer.datasets import multi30k
from keras_transformer.runs import Recipe

REPOSITORY = Path(__file__).parents[2]
CORPUS = Path(
    os.environ.get(
        "KERAS_TRANSFORMER_MULTI30K", REPOSITORY.parent / "shared/data/multi30k"
    )
)


@pytest.fixture
def folder(tmp_path):
    """A folder laid out as the repository of the corpus lays it out."""
    for form, pattern in (("raw", "{}.{}.gz"), ("tok", "{}.lc.norm.tok.{}")):
        (tmp_path / form).mkdir()
        for name in ("train", "val", "test_2016_flickr"):
            for language in ("en", "de"):
                (tmp_path / form / pattern.format(name, language)).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("raw", ("train.en.gz", "train.de.gz")),
        ("tok", ("train.lc.norm.tok.en", "train.lc.norm.tok.de")),
    ],
)
def test_finds_both_sides_of_a_split(folder, form, names):
    found = multi30k(folder, form=form).train
    assert found == tuple(str(folder / form / name) for name in names)


def test_tokenised_files_may_have_the_names_of_raw_ones(folder):
    (folder / "raw").rename(folder / "kept")
    (folder / "tok").rename(folder / "raw")
    (folder / "kept").rename(folder / "tok")
    found = multi30k(folder, form="tok").test
    names = "test_2016_flickr.en.gz", "test_2016_flickr.de.gz"
    assert found == tuple(str(folder / "tok" / name) for name in names)


def test_splits_and_sides_are_not_mixed_up(folder):
    data = multi30k(str(folder), source="de", target="en")
    names = [[Path(path).name for path in split] for split in data]
    assert names == [
        ["train.de.gz", "train.en.gz"],
        ["val.de.gz", "val.en.gz"],
        ["test_2016_flickr.de.gz", "test_2016_flickr.en.gz"],
    ]


def test_a_missing_file_is_named_with_where_to_get_it(folder):
    (folder / "raw/val.de.gz").unlink()
    message = r"raw/val\.de\.gz is missing.*github\.com/multi30k/dataset"
    with pytest.raises(FileNotFoundError, match=message):
        multi30k(folder)


@pytest.mark.parametrize(
    ("form", "name"), [("raw", r"train\.it\.gz"), ("tok", r"train\.lc\.norm\.tok\.it")]
)
def test_a_language_that_is_missing_is_answered_with_those_that_are_there(
    folder, form, name
):
    message = rf"{name} is missing\. It has de, en\. Clone"
    with pytest.raises(FileNotFoundError, match=message):
        multi30k(folder, target="it", form=form)


def test_the_recipe_names_the_files_of_the_repository(folder):
    data = Recipe.load("multi30k", {"data.folder": str(folder)}).data
    raw, tokenised = multi30k(folder), multi30k(folder, form="tok")
    for split in ("validation", "test"):
        sides = ("source", "target", "tokenized")
        found = [str(path) for side in sides for path in data.paths(split, side)]
        assert found == [*getattr(raw, split), getattr(tokenised, split).target]


def test_an_unknown_form_is_named(folder):
    with pytest.raises(ValueError, match="`form` must be 'raw' or 'tok'.*'bpe'"):
        multi30k(folder, form="bpe")


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"Multi30k is not at {CORPUS}")
@pytest.mark.parametrize("form", ["raw", "tok"])
@pytest.mark.parametrize("target", ["de", "fr"])
def test_the_corpus_has_its_published_sizes(target, form):
    sizes = []
    for split in multi30k(CORPUS, target=target, form=form):
        for path in split:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                sizes.append(sum(1 for _ in lines))
    assert sizes == [29_000, 29_000, 1014, 1014, 1000, 1000]
