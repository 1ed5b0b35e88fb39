"""Multi30k: descriptions of 31,014 photographs in several languages."""

import os
from pathlib import Path

from keras_transformer.datasets.splits import ParallelText, Splits

_SPLITS = ("train", "val", "test_2016_flickr")
_FILE_NAMES = {
    "raw": "{split}.{language}.gz",
    "tok": "{split}.lc.norm.tok.{language}",
}


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
    if form not in _FILE_NAMES:
        raise ValueError(f"`form` must be 'raw' or 'tok'. Received: form={form!r}.")

    def find(split, language):
        name, there = _FILE_NAMES[form], Path(folder, form)
        # Some copies name tokenised files as the repository names the raw ones.
        for pattern in (_FILE_NAMES["raw"], name):
            path = there / pattern.format(split=split, language=language)
            if path.is_file():
                return str(path)
        names = there.glob(name.format(split=split, language="*"))
        found = {x.name.removesuffix(".gz").split(".")[-1] for x in names}
        languages = f" It has {', '.join(sorted(found))}." if found else ""
        raise FileNotFoundError(
            f"`folder` must hold Multi30k, but {path} is missing.{languages} Clone "
            "https://github.com/multi30k/dataset and pass its folder data/task1."
        )

    return Splits(
        *(ParallelText(find(split, source), find(split, target)) for split in _SPLITS)
    )
