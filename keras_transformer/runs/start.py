"""The start of a run: what its folder holds, and what training needs there."""

import importlib.metadata
import platform
import shutil

import keras

from keras_transformer.models.presets import PRESETS
from keras_transformer.runs.defaults import left_out
from keras_transformer.runs.folder import Run
from keras_transformer.runs.recipe import SIDES, Recipe, read_yaml
from keras_transformer.storage import is_unfinished, remove_unfinished, replace_file
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.prepared import MANIFEST
from keras_transformer.text.tokenizer_training import VocabularySizeError
from keras_transformer.text_files import checksum
from keras_transformer.version import __version__

# Settings that may differ from those of the pretrained model.
FREE_SETTINGS = {"dropout", "attention_dropout", "activation_dropout", "seed"}
_LIBRARIES = ("keras", "tensorflow", "tensorflow-text", "sentencepiece", "numpy")


def check_new(run: Run) -> None:
    """Raises `ValueError` if the folder of a new run holds something else."""
    if run.settings_path.is_file() or not run.folder.exists():
        return
    is_folder = run.folder.is_dir()
    if not is_folder or not all(map(is_unfinished, run.folder.iterdir())):
        raise ValueError(
            f"{run.folder} holds something other than a run. Name a new folder."
        )


def resumed(recipe: Recipe, run: Run) -> Recipe:
    """Returns a recipe with the settings of the run that it resumes, if it names none.

    Raises:
        ValueError: If it names others.
    """
    recipe = recipe.completed(left_out(recipe, run.recipe))
    _check_same(run, run.recipe.differences(recipe))
    return recipe


def begin(
    recipe: Recipe,
    run: Run,
    epochs_done: int,
    adjusts_vocabulary: bool = False,
) -> None:
    """Writes the settings of a run and, if it is new, its tokenizers.

    What a killed process left beyond the last checkpoint is removed.

    Args:
        recipe: Its recipe.
        run: A new run, or one that the recipe resumes.
        epochs_done: Complete epochs after which it resumes; 0 for a new run.
        adjusts_vocabulary: Whether a vocabulary that the text cannot fill becomes
            smaller, and the settings say so. It is an error otherwise.

    Raises:
        ValueError: If the training text has changed since the run began, or settings do
            not agree with the pretrained translator.
    """
    checksum, is_resumed = _text_checksum(recipe), run.has_trained()
    if is_resumed:
        _check_text(run, checksum)
    run.folder.mkdir(parents=True, exist_ok=True)
    for folder in (run.folder, run.translator_path, run.pretrained_path):
        remove_unfinished(folder)
    versions = {"keras-transformer": __version__, "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in _LIBRARIES}
    versions["training_text"] = checksum
    run.write_settings(recipe, versions)
    if is_resumed:
        run.log.truncate(epochs_done)
        run.checkpoints().keep_best()
        return
    # An interrupted start may have left those of other settings.
    shutil.rmtree(run.tokenizers_path, ignore_errors=True)
    shutil.rmtree(run.pretrained_path, ignore_errors=True)
    run.log.path.unlink(missing_ok=True)
    if recipe.model.pretrained:
        copy_pretrained(recipe.model.pretrained, recipe, run)
    if recipe.data.prepared:
        copy_tokenizers(recipe.data.prepared, run)
    if recipe.model.pretrained or recipe.data.prepared:
        return
    source_files, target_files = (recipe.data.paths("train", side) for side in SIDES)
    if recipe.tokenizer.shared:
        files_to_learn = {"shared": [*source_files, *target_files]}
    else:
        files_to_learn = {"source": source_files, "target": target_files}
    how = recipe.tokenizer.model_dump(exclude={"shared", "sampling"})
    how["symbols"] = recipe.symbols()
    sizes = []
    for name, files in files_to_learn.items():
        try:
            tokenizer = SubwordTokenizer.train(files, **how)
        except VocabularySizeError as error:
            if not adjusts_vocabulary:
                raise
            nearest = {"vocabulary_size": error.nearest}
            tokenizer = SubwordTokenizer.train(files, **how | nearest)
        tokenizer.save(run.tokenizers_path / f"{name}.model")
        sizes.append(tokenizer.vocabulary_size)
    if max(sizes) != recipe.tokenizer.vocabulary_size:
        size = {"tokenizer.vocabulary_size": max(sizes)}
        run.write_settings(recipe.completed(size), versions)


def join(recipe: Recipe, run: Run) -> None:
    """Checks that the chief has begun a run with the same settings and text."""
    begun = Run(run.folder)  # written since this process looked at it
    if not begun.settings_path.is_file():
        raise FileNotFoundError(
            f"{run.folder} holds no run that another worker has begun. All workers "
            "must share the folder: name one on a disk that all of them can read."
        )
    recipe = resumed(recipe, begun)
    _check_text(begun, _text_checksum(recipe))
    run.recipe = recipe


def copy_pretrained(where: str, recipe: Recipe, run: Run) -> None:
    """Writes the translator that training continues from, and its tokenizers, to a run.

    Raises:
        ValueError: If the recipe has settings that do not agree with the translator.
    """
    from keras_transformer.translator import Translator, check_one_transformer

    other = Run(where)
    is_run = other.settings_path.is_file()
    translator = other.translator() if is_run else Translator.from_preset(where)
    check_one_transformer(translator, "Training")
    _check_agreement(recipe, translator)
    for tag in recipe.symbols():
        [subwords] = translator.source_tokenizer.split([tag]).numpy()
        if tag not in [subword.decode().strip("\u2581") for subword in subwords]:
            raise ValueError(
                "`tag` must be a subword of the pretrained translator. Received: "
                f"tag={tag!r}, which it splits into {len(subwords)}."
            )
    translator.save(run.pretrained_path)
    translator.source_tokenizer.save(run.tokenizers_path / "source.model")
    translator.target_tokenizer.save(run.tokenizers_path / "target.model")


def copy_tokenizers(prepared: str, run: Run) -> None:
    """Copies the tokenizers of prepared text to a run.

    Raises:
        ValueError: If the run has others, those of its pretrained translator.
    """
    for path in Run(prepared).tokenizers_path.iterdir():
        copy = run.tokenizers_path / path.name
        if copy.exists() and copy.read_bytes() != path.read_bytes():
            raise ValueError(
                f"{prepared} was prepared with other tokenizers than those of the "
                "pretrained translator. Prepare the text with the same "
                "`model.pretrained`."
            )
        with replace_file(copy) as unfinished:
            shutil.copyfile(path, unfinished)


def _check_agreement(recipe, translator):
    """Raises `ValueError` unless all that the recipe names is as in the translator."""
    learnt = recipe.tokenizer.model_dump(
        exclude={"sampling"}, exclude_unset=True, exclude_none=True
    )
    model = recipe.model
    arguments = {} if model.preset is None else dict(PRESETS[model.preset])
    overrides = model.overrides().items()
    arguments |= {k: v for k, v in overrides if k in model.model_fields_set}
    if "activation" in arguments:  # by the name that a model's settings have
        function = keras.activations.get(arguments["activation"])
        arguments["activation"] = keras.activations.serialize(function)
    named = {f"tokenizer.{k}": v for k, v in learnt.items()}
    named |= {f"model.{k}": v for k, v in arguments.items() if k not in FREE_SETTINGS}
    config = translator.model.get_config()
    found = {
        "tokenizer.vocabulary_size": translator.source_tokenizer.vocabulary_size,
        "tokenizer.shared": config["target_vocabulary_size"] is None,
        **{f"model.{name}": value for name, value in config.items()},
    }
    for name, value in named.items():
        if name not in found:
            raise ValueError(
                f"`{name}` must be left out with `model.pretrained`, which brings its "
                f"tokenizers. Received: {name}={value!r}."
            )
        if value != found[name]:
            raise ValueError(
                f"`{name}` must be {found[name]!r}, as in the pretrained translator, "
                f"or be left out. Received: {name}={value!r}."
            )


def _check_same(run, differences):
    if differences:
        raise ValueError(
            f"{run.folder} holds another model: {'; '.join(differences)}. Name another "
            "run folder, or train with the settings that this run began with."
        )


def _check_text(run, checksum):
    before = read_yaml(run.settings_path)["versions"]["training_text"]
    if checksum != before:
        _check_same(run, [f"its training text was {before} and is {checksum}"])


def _text_checksum(recipe):
    """Returns a checksum of the training text that ignores the names of its files."""
    if recipe.data.prepared:
        return f"ids of {checksum(Run(recipe.data.prepared).ids_path / MANIFEST)}"
    return checksum([x for side in SIDES for x in recipe.data.paths("train", side)])
