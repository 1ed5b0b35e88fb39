"""Multi30k: descriptions of 31,014 photographs in several languages."""

import os
from pathlib import Path

from keras_transformer.datasets.splits import ParallelText, Splits

_FORMS = ("raw", "tok")
_NAMES = Splits(train="train", validation="val", test="test_2016_flickr")
# The repository gzips what is raw and names what is tokenised after its making.
_PATTERNS = ("{name}.{language}.gz", "{name}.lc.norm.tok.{language}")


def multi30k(
    folder: str | os.PathLike,
    source: str = "en",
    target: str = "de",
    form: str = "raw",
) -> Splits:
    """Finds the files of Multi30k's first task, translation, in a folder.

    The corpus is for non-commercial research and education only. It does not
    come with this package, and nothing of it is read or copied here: the paths
    are for `text.SubwordTokenizer.train` and `text.parallel_dataset`.

    Args:
        folder: Where the corpus lies, such as `data/task1` in a clone of its
            repository: a folder that holds `raw` and `tok`.
        source: Language to translate from, such as `"en"`, `"de"` or `"fr"`.
        target: Language to translate into.
        form: `"raw"` for text as it was written, `"tok"` for text that is
            lower-cased and split into words by the Moses tokenizer.

    Returns:
        `Splits` whose `train`, `validation` and `test` (of 2016) hold the paths
        of a `source` and a `target` file, one sentence a line.

    Raises:
        ValueError: If `form` is neither `"raw"` nor `"tok"`.
        FileNotFoundError: If a file is missing.

    Reference:
        [Elliott et al., 2016](https://arxiv.org/abs/1605.00459)
    """
    if form not in _FORMS:
        raise ValueError(f"`form` must be 'raw' or 'tok'. Received: form={form!r}.")
    return Splits(
        *(
            ParallelText(
                source=_find(Path(folder, form), name, source),
                target=_find(Path(folder, form), name, target),
            )
            for name in _NAMES
        )
    )


def _find(folder, name, language):
    paths = [
        folder / pattern.format(name=name, language=language) for pattern in _PATTERNS
    ]
    for path in paths:
        if path.is_file():
            return str(path)
    raise FileNotFoundError(
        f"`folder` must hold Multi30k, but {paths[0]} is missing. Clone "
        "https://github.com/multi30k/dataset and pass its folder data/task1."
    )
