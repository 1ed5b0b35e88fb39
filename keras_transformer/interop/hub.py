"""Folders of presets, local or downloaded from the Hugging Face Hub."""

import errno
import functools
import os
from pathlib import Path

from keras_transformer.checks import optional

_PREFIX = "hf://"


def preset_folder(where: str | os.PathLike) -> Path:
    """Returns the folder of a preset, downloaded if it is on the Hugging Face Hub.

    Downloads are resumed, and read from the cache of `huggingface_hub` when offline.
    `where` is a folder or `"hf://user/model"`, with "@" before a branch, tag or commit.
    """
    where = os.fspath(where)
    if where.startswith(_PREFIX):
        return _download(where)
    if not Path(where).is_dir():
        raise FileNotFoundError(
            f"{where} is not a folder. Pass the folder of a saved translator or of a "
            "checkpoint in Hugging Face's layout, or "
            '"hf://user/model" for a model on the Hugging Face Hub.'
        )
    return Path(where)


def _download(where) -> Path:
    with optional("huggingface_hub", extra="hub", purpose=f"Downloading {where}"):
        import huggingface_hub
        from huggingface_hub import errors
    name, _, revision = where.removeprefix(_PREFIX).partition("@")

    download = functools.partial(
        huggingface_hub.snapshot_download, name, revision=revision or None
    )
    texts = ["*.json", "*.spm", "*.model", "*.txt"]
    try:
        folder = Path(download(allow_patterns=[*texts, "*.safetensors", "*.keras"]))
        if not any(folder.glob("*.safetensors")):
            folder = Path(download(allow_patterns=[*texts, "*.bin"]))
        return folder
    except errors.GatedRepoError:
        raise PermissionError(
            f"{where} is gated. Accept its terms on https://huggingface.co/{name}, "
            "then run `hf auth login`."
        ) from None
    except errors.RepositoryNotFoundError:
        raise FileNotFoundError(
            f"{where} does not exist, or is private. Check its name; for a private "
            "model run `hf auth login`."
        ) from None
    except errors.RevisionNotFoundError:
        raise FileNotFoundError(f"{where} has no revision {revision!r}.") from None
    except errors.HFValidationError as error:
        raise ValueError(f"{where} is not hf://user/model: {error}") from None
    # The HTTP library in use raises HTTPError: a connection dropped or timed out.
    except (OSError, errors.HTTPError) as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EACCES):
            raise  # of the disk, not of the connection
        raise ConnectionError(
            f"{where} could not be downloaded, and the cache has no copy of it "
            f"({type(error).__name__}). Check the connection, and try again."
        ) from None
