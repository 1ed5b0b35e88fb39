"""Checking and writing the pictures that commands draw."""

from pathlib import Path

_PAGE = ".html"


def check_picture(path: Path, page: bool = False) -> None:
    """Checks the name of a picture before anything is computed for it.

    With `page`, it may also be that of an HTML page.

    Raises:
        ValueError: If Matplotlib cannot write this type of file.
    """
    from matplotlib.figure import Figure

    suffix = path.suffix.lower()
    if page and suffix == _PAGE:
        return
    if suffix[1:] not in Figure().canvas.get_supported_filetypes():
        known = f".png, .pdf or {_PAGE}" if page else ".png or .pdf"
        raise ValueError(f"{path} is not the name of a picture. End it in {known}.")


def write_attention(translator, text: str, search, path: Path) -> None:
    """Writes the attention of a translation as a picture or an HTML page."""
    from keras_transformer import plots

    if path.suffix.lower() == _PAGE:
        translated = plots.translate_with_attention(translator, text, search)
        path.write_text(plots.attention_html(translated), "ascii")
    else:
        plots.translation_attention(translator, text, search).savefig(path, dpi=150)
