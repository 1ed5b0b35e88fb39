"""Multi30k: descriptions of 31,014 photographs in several languages."""

import os
from pathlib import Path

from keras_transformer.datasets.splits import ParallelText, Splits

_FORMS = ("raw", "tok")
_FILES = Splits(train="train", validation="val", test="test_2016_flickr")


def multi30k(
    folder: str | os.PathLike,
    source: str = "en",
    target: str = "de",
    form: str = "raw",
) -> Splits:
    """Finds the files of Multi30k, translation task 1, in a folder.

    The corpus is for non-commercial research and education only. It does not
    come with this package, and nothing of it is copied or read here: the
    paths returned are what `text.parallel_dataset` takes.

    Args:
        folder: Where the corpus lies: `folder/raw/train.en.gz` and so on.
        source: Language to translate from, such as `"en"`, `"de"` or `"fr"`.
        target: Language to translate into.
        form: `"raw"` for text as it was written, `"tok"` for text that is
            lower-cased and split into words by the Moses tokenizer.

    Returns:
        `Splits` whose `train`, `validation` and `test` hold the paths of a
        `source` and a `target` file, gzipped, one sentence a line.

    Raises:
        ValueError: If `form` is neither `"raw"` nor `"tok"`.
        FileNotFoundError: If a file is missing.

    Reference:
        [Elliott et al., 2016](https://arxiv.org/abs/1605.00459)
    """
    if form not in _FORMS:
        raise ValueError(f"`form` must be 'raw' or 'tok'. Received: form={form!r}.")
    splits = Splits(
        *(
            ParallelText(
                source=str(Path(folder, form, f"{name}.{source}.gz")),
                target=str(Path(folder, form, f"{name}.{target}.gz")),
            )
            for name in _FILES
        )
    )
    missing = [path for split in splits for path in split if not os.path.isfile(path)]
    if missing:
        raise FileNotFoundError(
            "`folder` must hold the files of Multi30k. "
            f"Received: folder={str(folder)!r}, without {missing[0]!r}. Get them "
            "from https://github.com/multi30k/dataset, data/task1."
        )
    return splits
