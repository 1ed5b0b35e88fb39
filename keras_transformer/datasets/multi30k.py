"""Multi30k: descriptions of 31,014 photographs in several languages."""

import os
from pathlib import Path

from keras_transformer.datasets.splits import ParallelText, Splits

_SPLITS = ("train", "val", "test_2016_flickr")
# Names of raw and of tokenised files: the split and the language.
_PATTERNS = ("{}.{}.gz", "{}.lc.norm.tok.{}")


def multi30k(
    folder: str | os.PathLike, source: str = "en", target: str = "de", form: str = "raw"
) -> Splits:
    """Returns the paths of Multi30k's files for its first task, translation.

    The corpus is for non-commercial research and education only, and not part of this
    package. Pass the paths to `SubwordTokenizer.train` and `parallel_dataset`.

    Args:
        folder: Folder that holds `raw` and `tok`: `data/task1` of its repository.
        source: Language to translate from, such as `"en"`, `"de"` or `"fr"`.
        target: Language to translate into.
        form: `"raw"` for the original text, `"tok"` for text that is lower-cased and
            split into words by the Moses tokenizer.

    Returns:
        `Splits` whose `train`, `validation` and `test` (of 2016) hold the paths
        of a `source` and a `target` file, one sentence a line.

    Raises:
        ValueError: If `form` is neither `"raw"` nor `"tok"`.
        FileNotFoundError: If a file is missing.

    Reference:
        [Elliott et al., 2016](https://arxiv.org/abs/1605.00459)
    """
    if form not in ("raw", "tok"):
        raise ValueError(f"`form` must be 'raw' or 'tok'. Received: form={form!r}.")

    def find(split, language):
        names = (pattern.format(split, language) for pattern in _PATTERNS)
        paths = [Path(folder, form, name) for name in names]
        for path in paths:
            if path.is_file():
                return str(path)
        found = {x.name.split(".")[1] for x in Path(folder, form).glob(f"{split}.*.gz")}
        languages = f" It has {', '.join(sorted(found))}." if found else ""
        raise FileNotFoundError(
            f"`folder` must hold Multi30k, but {paths[0]} is missing.{languages} Clone "
            "https://github.com/multi30k/dataset and pass its folder data/task1."
        )

    return Splits(
        *(ParallelText(find(split, source), find(split, target)) for split in _SPLITS)
    )
