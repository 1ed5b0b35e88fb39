"""Pictures that the shell draws."""

from pathlib import Path

PAGE = ".html"


def check_picture(path: Path, page: bool = False) -> None:
    """Finds a name that no picture can have, before anything is computed for it.

    Args:
        path: Name of the file to write.
        page: Whether it may be a page of HTML, too.

    Raises:
        ValueError: If Matplotlib writes no such kind of file.
    """
    from matplotlib.figure import Figure

    kind = path.suffix.lower()
    if page and kind == PAGE:
        return
    if kind[1:] not in Figure().canvas.get_supported_filetypes():
        known = f".png, .pdf or {PAGE}" if page else ".png or .pdf"
        raise ValueError(f"{path} is no name of a picture. End it in {known}.")


def write_attention(translator, text: str, search, path: Path) -> None:
    """Writes a picture of the attention of a translation, or a page to explore it."""
    from keras_transformer.plots import (
        attention_html,
        translate_with_attention,
        translation_attention,
    )

    if path.suffix.lower() == PAGE:
        seen = translate_with_attention(translator, text, search)
        path.write_text(attention_html(seen), "ascii")
    else:
        translation_attention(translator, text, search).savefig(path, dpi=150)
