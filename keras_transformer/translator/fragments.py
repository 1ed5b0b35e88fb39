"""Translates text with codes, such as tags, which stay around what they enclosed."""

from collections.abc import Sequence

from keras_transformer.decoding import Search
from keras_transformer.markup import Fragment, is_empty, read_markup, write_markup
from keras_transformer.placement import translate_coded
from keras_transformer.translation import Translation, as_bytes
from keras_transformer.translator.translator import Translator


def translate_markup(
    translator: Translator,
    texts: Sequence[str],
    search: Search | None = None,
    **settings,
) -> list[Translation]:
    """Translates texts with tags, such as HTML's `<b>` and XLIFF's `<g>` and `<x/>`.

    The text without its tags is translated as by `Translator.translate`, so tags never
    change a translation. Then the tags are put back, using `Translator.align`:

    - **Every tag of the source appears once in the result**, and tags that were nested
      properly still are. Comments and processing instructions count as tags.
    - **A pair of tags** encloses the part of the translation that renders what it
      enclosed in the source. It begins and ends between words. If that part is in
      several pieces, it encloses the piece with the most of it; if nothing renders what
      it enclosed, it encloses nothing. A pair around the whole text, or around all that
      another pair encloses, stays around it.
    - **A tag without content**, such as `<br>`, `<x/>` or `<b></b>`, is placed before
      the word that renders the one it stood before, or at the end.
    - **An unbalanced tag** is placed alone: an opening one like `<br>`, and a closing
      one after the word that it stood after.
    - **Native code in XLIFF**, such as `<ph>%s</ph>`, is one tag with its content, and
      so are scripts and styles. `<bpt>` and `<ept>`, `<bx/>` and `<ex/>`, `<sc/>` and
      `<ec/>` are pairs.
    - **Entities**, such as `&amp;`, are translated as the characters that they stand
      for. In the result `&`, `<`, and characters that the text has as entities, are
      entities except inside tags.

    A text with only tags and white space stays as it is. The values of attributes are
    not translated. `<br>`, and other tags that do not occur within words, separate the
    words around them.

    Args:
        translator: A `Translator`.
        texts: Texts to translate, a list of str.
        search: As in `Translator.translate`.
        **settings: Other arguments of `Translator.translate`.

    Returns:
        The best `Translation` of each text; its flags tell if the source was cut.

    Raises:
        ValueError: As in `Translator.translate`.

    Example:
        >>> (best,) = kt.translator.translate_markup(translator, ["<i>a man</i>"])
        >>> best.text.startswith("<i>"), best.text.endswith("</i>")
        (True, True)
    """
    as_bytes(texts)  # checks that they are texts
    fragments = list(map(read_markup, texts))
    found = translate_fragments(translator, fragments, search, **settings)
    rows = []
    for text, source, (fragment, best) in zip(texts, fragments, found, strict=True):
        stays = is_empty(source) and text.strip()
        rows.append(best._replace(text=text if stays else write_markup(fragment, text)))
    return rows


def translate_fragments(
    translator: Translator,
    fragments: Sequence[Fragment],
    search: Search | None = None,
    **settings,
) -> list[tuple[Fragment, Translation]]:
    """Translates fragments; `translate_markup` explains where their codes are placed.

    The arguments are as in `translate_markup`, with fragments, lists of strings and
    `keras_transformer.markup.Code`s, in place of texts.

    Returns:
        For each, the translated fragment, and the best `Translation` of its plain text.
    """
    rows = translate_coded(translator, fragments, search=search, **settings)
    return [row[0] for row in rows]
