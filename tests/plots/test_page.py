import html
import html.parser
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from keras_transformer.plots import AttendedTranslation, attention_html

SOURCE = ["\u2581a", "\u2581do", "g", ".", "</s>"]
TARGET = ["\u2581Hund", ".", "</s>"]
HEBREW = ["\u2581כלב", "\u2581ש", "חור", ".", "</s>"]
ARABIC = ["\u2581كلب", ".", "</s>"]
SOURCE_WORDS = ["a", "do", "·g", ".", "</s>"]
TARGET_WORDS = ["Hund", ".", "</s>"]
NASTY = "</script><script>document.title = 'broken'</script><!-- &amp; <b>"
BROWSERS = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")


def attended(source=SOURCE, target=TARGET, text="Hund."):
    """A translation with the scores of two layers of three heads."""
    draw = np.random.default_rng(7)
    sizes = {
        "encoder": (len(source), len(source)),
        "decoder": (len(target), len(target)),
        "cross": (len(target), len(source)),
    }
    scores = {name: draw.random((2, 3, *size)) for name, size in sizes.items()}
    scores = {name: each / each.sum(-1, keepdims=True) for name, each in scores.items()}
    return AttendedTranslation(text, source, target, scores)


def data_of(page):
    """Returns what the page was given to show."""
    return json.loads(re.search('id="data">(.*?)</script>', page)[1])


def translation_of(page):
    """Returns the only translation of a page."""
    (translation,) = data_of(page)["translations"]
    return translation


def sides_of(dom):
    """Returns what stands on each side of a page, as HTML."""
    return re.findall("<section.*?</section>", dom, re.DOTALL)


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Function that opens a page, acts on it, and returns what it then shows."""
    found = [path for name in BROWSERS if name and (path := shutil.which(name))]
    if not found:
        pytest.skip("No Chromium here: install it, or name it in CHROMIUM.")
    folder = tmp_path_factory.mktemp("browser")

    def browse(page, link="", script=""):
        path = folder / "page.html"
        path.write_text(page.replace("</body>", f"<script>{script}</script></body>"))
        done = subprocess.run(
            [
                found[0],
                "--headless",
                "--no-sandbox",  # which root may not have
                "--disable-dev-shm-usage",
                f"--user-data-dir={folder / 'profile'}",
                "--virtual-time-budget=5000",
                "--dump-dom",
                f"{path.as_uri()}#{link}",
            ],
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        return done.stdout

    return browse


def shown_keys(dom):
    """Returns each word that is attended to, its shade, and its percentage."""
    pattern = r'style="--weight: ([\d.]+);"><bdi>(.*?)</bdi><small>(\d+)%</small>'
    return [
        (html.unescape(word), float(weight), int(percent))
        for weight, word, percent in re.findall(pattern, dom)
    ]


def summary(dom):
    return re.sub("<.*?>", "", re.search(r'class="quiet summary".*?>(.*?)</p>', dom)[1])


def assert_shows(dom, words, weights):
    keys = shown_keys(dom)
    assert [word for word, _, _ in keys] == words
    np.testing.assert_allclose([weight for _, weight, _ in keys], weights, atol=5.1e-4)
    percents = [percent for _, _, percent in keys]
    np.testing.assert_allclose(percents, 100 * weights, atol=0.56)


def test_a_page_opens_with_the_mean_of_the_last_cross_attention(browse):
    seen = attended()
    dom = browse(attention_html(seen))
    weights = seen.scores["cross"][-1].mean(axis=0)[0]
    assert_shows(dom, SOURCE_WORDS, weights)
    best = [SOURCE_WORDS[key] for key in np.argsort(-weights)[:3]]
    named = re.fullmatch(
        r"Layer 1, mean: Hund attended most to (.+) \(\d+%\), (.+) \(\d+%\), "
        r"(.+) \(\d+%\)\.",
        html.unescape(summary(dom)),
    )
    assert list(named.groups()) == best


def test_a_page_that_becomes_narrow_scrolls_to_the_chosen_map(browse):
    script = """
    const frame = document.querySelector("iframe");
    const look = () => {
      const maps = frame.contentDocument.querySelector(".maps");
      if (maps?.querySelector("canvas")) frame.style.width = "180px";
      if (maps?.scrollLeft) document.title = `scrolled by ${maps.scrollLeft}`;
      else setTimeout(look, 9);
    };
    look();
    """
    inner = html.escape(attention_html(attended()))
    frame = f'<iframe style="width: 999px" srcdoc="{inner}"></iframe>'
    dom = browse(f"<title></title><body>{frame}</body>", script=script)
    assert int(re.search(r"<title>scrolled by (\d+)", dom)[1]) > 0


@pytest.mark.quick("encoder-0-1-4-keys1")
@pytest.mark.parametrize(
    ("kind", "layer", "head", "word", "keys"),
    [
        ("cross", 1, 2, 2, SOURCE_WORDS),
        ("encoder", 0, 1, 4, SOURCE_WORDS),
        ("decoder", 1, 0, 1, ["<s>", "Hund", "."]),
    ],
)
def test_a_link_chooses_kind_layer_head_and_word(browse, kind, layer, head, word, keys):
    seen = attended()
    link = f"part={kind}&layer={layer}&head={head}&word={word}"
    dom = browse(attention_html(seen), link)
    assert_shows(dom, keys, seen.scores[kind][layer, head, word])
    assert f"Layer {layer}, head {head}: " in summary(dom)


def test_what_is_chosen_by_hand_is_shown_and_can_be_linked_to(browse):
    seen = attended()
    dom = browse(
        attention_html(seen),
        script="""
        const all = (name) => document.querySelectorAll(`input[name^=${name}]`);
        all("kind")[1].click();
        document.querySelector("input[aria-label='layer 0, head 2']").click();
        all("word")[3].click();
        document.body.append(element("p", {id: "link"}, location.hash));
        """,
    )
    assert_shows(dom, SOURCE_WORDS, seen.scores["encoder"][0, 2, 3])
    link = html.unescape(re.search(r'id="link">#(.*?)</p>', dom)[1])
    assert link == "part=encoder&layer=0&head=2&word=3"


@pytest.mark.quick("ArrowUp")
@pytest.mark.parametrize("key", ["ArrowUp", "ArrowDown"])
def test_arrows_go_round_the_layers_of_a_head(browse, key):
    seen = attended()
    press = f"""
        document.querySelector("input[name=map-0]:checked").dispatchEvent(
          new KeyboardEvent("keydown", {{key: "{key}", bubbles: true}}));
        """
    dom = browse(attention_html(seen), "part=cross&layer=1&head=2&word=0", press)
    assert_shows(dom, SOURCE_WORDS, seen.scores["cross"][0, 2, 0])


def test_a_word_is_shown_while_the_mouse_is_on_it(browse):
    seen = attended()
    point = """
        const words = views[0].queries;
        words.children[2].dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
        """
    link = "part=cross&layer=0&head=1&word=1"
    during = browse(attention_html(seen), link, point)
    assert_shows(during, SOURCE_WORDS, seen.scores["cross"][0, 1, 2])
    leave = 'words.dispatchEvent(new MouseEvent("mouseleave"));'
    after = browse(attention_html(seen), link, point + leave)
    assert_shows(after, SOURCE_WORDS, seen.scores["cross"][0, 1, 1])


def test_a_link_that_leads_nowhere_opens_the_page_as_it_is(browse):
    seen = attended()
    dom = browse(attention_html(seen), "part=none&layer=2&head=3&word=-1")
    assert_shows(dom, SOURCE_WORDS, seen.scores["cross"][-1].mean(axis=0)[0])


def test_text_that_looks_like_markup_is_shown_as_text(browse):
    seen = attended(["\u2581a", NASTY, "</s>"], text=NASTY)
    page = attention_html(seen)
    assert page.count("<script") == 2
    dom = browse(page)
    assert [word for word, _, _ in shown_keys(dom)] == ["a", NASTY, "</s>"]
    title = html.unescape(re.search("<title>(.*?)</title>", dom)[1])
    assert title == f"a{NASTY} \u2192 {NASTY}"


def test_a_page_names_the_source_and_begins_at_a_word_not_at_a_blank(browse):
    seen = attended(target=["\u2581", "1", "\u2581Hund", "</s>"], text="1 Hund")
    dom = browse(attention_html(seen))
    assert "<bdi>a dog.</bdi> \u2192 <bdi>1 Hund</bdi></h1>" in dom
    assert "Layer 1, mean: <bdi>\u00b71</bdi> attended most to" in dom
    assert '<span id="marks">' in dom  # the legend of the marks of blanks and pieces
    no_marks = attended(source=["\u2581a", "</s>"], target=["\u2581x", "</s>"])
    assert '<span id="marks" hidden' in browse(attention_html(no_marks))


def test_a_page_fetches_nothing():
    page = attention_html(attended())
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|\ssrc=|\shref=|@import|url\(", page)


@pytest.mark.parametrize("text", ["我喜欢", "\ud800", "\u2028", "{{data}}", NASTY])
def test_a_page_keeps_any_text(text):
    page = attention_html(attended(target=[text], text=text))
    assert page.isascii()
    translation = translation_of(page)
    assert translation["text"] == text
    assert translation["kinds"][0]["queries"]["words"] == [text]


def test_a_page_holds_every_weight():
    seen = attended()
    for kind in translation_of(attention_html(seen))["kinds"]:
        weights = np.array(kind["layers"]) / 1000
        np.testing.assert_allclose(weights, seen.scores[kind["name"]], atol=5.1e-4)


def test_a_page_shows_the_kinds_that_there_are():
    seen = attended()
    seen = seen._replace(scores={"decoder": seen.scores["decoder"]})
    (kind,) = translation_of(attention_html(seen))["kinds"]
    assert kind["name"] == "decoder"
    assert kind["queries"]["words"] == TARGET_WORDS
    assert kind["keys"]["words"] == ["<s>", *TARGET_WORDS[:-1]]


@pytest.mark.parametrize(
    ("token", "direction"),
    [("مرحبا", "rtl"), ("שלום", "rtl"), ("12 a", "ltr"), ("我", "ltr"), ("7", "ltr")],
)
def test_words_stand_in_the_direction_of_their_script(token, direction):
    seen = attended(target=["\u2581" + token, "</s>"])
    cross, _, decoder = translation_of(attention_html(seen))["kinds"]
    assert cross["queries"]["direction"] == direction
    assert decoder["keys"]["direction"] == direction
    assert cross["keys"]["direction"] == "ltr"


@pytest.mark.quick("rtl-ltr-cross", "ltr-rtl-decoder")
@pytest.mark.parametrize("kind", ["cross", "decoder"])
@pytest.mark.parametrize("source", [SOURCE, HEBREW], ids=["ltr", "rtl"])
@pytest.mark.parametrize("target", [TARGET, ARABIC], ids=["ltr", "rtl"])
def test_columns_of_maps_follow_the_direction_of_the_keys(browse, source, target, kind):
    seen = attended(source, target)
    script = """
        const map = document.querySelector("canvas");
        const pixels = map.getContext("2d").getImageData(0, 0, map.width, map.height);
        const opacities = pixels.data.filter((_, index) => index % 4 === 3);
        document.body.append(element("p", {id: "opacities"}, opacities.join(" ")));
        """
    dom = browse(attention_html(seen), f"part={kind}", script)
    shown = re.search(r'id="opacities">(.*?)</p>', dom)[1].split()
    scores = seen.scores[kind][0, 0]
    keys = source if kind == "cross" else target
    drawn = scores[:, ::-1] if keys in (HEBREW, ARABIC) else scores
    shown = np.reshape(shown, scores.shape).astype("float32") / 255
    np.testing.assert_allclose(shown, np.sqrt(drawn), 0, 0.03)


@pytest.mark.parametrize("names", [(), ("self",), ("cross", "self")])
def test_kinds_that_no_translation_has_are_refused(names):
    scores = {name: np.ones((1, 1, 3, 5)) / 5 for name in names}
    with pytest.raises(ValueError, match=r"must hold some of the kinds .* Received:"):
        attention_html(attended()._replace(scores=scores))


@pytest.mark.parametrize("shape", [(2, 3, 5, 3), (3, 3, 5), (2, 0, 3, 5)])
def test_scores_that_do_not_go_with_the_tokens_are_refused(shape):
    seen = attended()._replace(scores={"cross": np.zeros(shape)})
    with pytest.raises(ValueError, match=r"\['cross'\]` must .*, \(3, 5\). Received: "):
        attention_html(seen)


@pytest.mark.parametrize("score", [-0.1, 1.1, np.nan])
def test_scores_that_are_no_attention_weights_are_refused(score):
    seen = attended()
    seen.scores["encoder"][1, 2, 3, 4] = score
    with pytest.raises(
        ValueError, match="be attention weights between 0 and 1. Received:"
    ):
        attention_html(seen)


# Several translations


OTHER = ["\u2581Der", "\u2581Hund", ".", "</s>"]


def aligned():
    """Two translations; their last layers align their words with the source's."""
    first, second = attended(), attended(target=OTHER, text="Der Hund.")
    first.scores["cross"][-1] = np.eye(5)[[1, 3, 4]]
    second.scores["cross"][-1] = np.eye(5)[[0, 1, 3, 4]]
    return first._replace(score=-0.25), second._replace(score=-1.5)


def test_two_translations_stand_side_by_side(browse):
    page = attention_html(*aligned(), names=["one", "two"])
    assert data_of(page)["source"] == "a dog."
    dom = browse(page)
    assert "<title>Translations of a dog.</title>" in dom
    first, second = sides_of(dom)
    for side, name, text, score in [
        (first, "one", "Hund.", "-0.25"),
        (second, "two", "Der Hund.", "-1.50"),
    ]:
        assert re.search("<h2.*?>(.*?)</h2>", side)[1] == text
        assert f">{name}, score {score}</p>" in side
    assert_shows(first, SOURCE_WORDS, np.eye(5)[1])
    assert_shows(second, SOURCE_WORDS, np.eye(5)[1])
    differs = r'class="word differs.*?<bdi>(.*?)</bdi>'
    assert [re.findall(differs, side) for side in (first, second)] == [[], ["Der"]]


@pytest.mark.quick("0-1-2", "1-3-2")
@pytest.mark.parametrize(
    ("side", "word", "other"), [(0, 0, 1), (0, 1, 2), (1, 1, 0), (1, 3, 2)]
)
def test_a_word_chooses_the_one_of_the_same_source_on_the_other_side(
    browse, side, word, other
):
    script = f"document.querySelectorAll('input[name=word-{side}]')[{word}].click();"
    sides = sides_of(browse(attention_html(*aligned()), script=script))
    rows = [np.eye(5)[[1, 3, 4]], np.eye(5)[[0, 1, 3, 4]]]
    assert_shows(sides[side], SOURCE_WORDS, rows[side][word])
    assert_shows(sides[1 - side], SOURCE_WORDS, rows[1 - side][other])


def test_a_map_that_is_chosen_is_shown_on_both_sides(browse):
    first, second = aligned()
    scores = {name: each[-1:, :2] for name, each in second.scores.items()}
    second = second._replace(scores=scores)  # of a smaller model
    script = (
        """document.querySelector("input[aria-label='layer 0, head 2']").click();"""
    )
    sides = sides_of(browse(attention_html(first, second), script=script))
    assert_shows(sides[0], SOURCE_WORDS, first.scores["cross"][0, 2, 0])
    assert_shows(sides[1], SOURCE_WORDS, second.scores["cross"][0, 1, 1])


def test_any_two_of_several_can_be_compared_and_linked_to(browse):
    first, second = aligned()
    page = attention_html(first, second, first._replace(text="Dritter", score=None))
    script = """
        const select = document.querySelector("select");
        select.value = 2;
        select.dispatchEvent(new Event("change", {bubbles: true}));
        document.body.append(element("p", {id: "link"}, location.hash));
        """
    dom = browse(page, "word=1,2", script)
    headings = [re.search("<h2.*?>(.*?)</h2>", side)[1] for side in sides_of(dom)]
    assert headings == ["Dritter", "Der Hund."]
    link = html.unescape(re.search(r'id="link">#(.*?)</p>', dom)[1])
    assert link == "part=cross&layer=1&head=mean&word=1,2&translation=2,1"
    headings = [
        re.search("<h2.*?>(.*?)</h2>", x)[1] for x in sides_of(browse(page, link))
    ]
    assert headings == ["Dritter", "Der Hund."]


def test_a_page_of_two_models_opens_with_the_best_of_each(browse):
    first, second = aligned()
    names = ["one", "one", "two"]
    page = attention_html(first, first._replace(text="Zweiter"), second, names=names)
    headings = [re.search("<h2.*?>(.*?)</h2>", x)[1] for x in sides_of(browse(page))]
    assert headings == ["Hund.", "Der Hund."]


def test_a_table_holds_what_the_chosen_map_shows(browse):
    seen = attended()
    script = "views[0].details.open = true;"
    dom = browse(attention_html(seen), "part=cross&layer=0&head=1", script)
    (table,) = re.findall('<div class="table".*?<table>(.*)</table>', dom)
    assert (
        "<caption>cross: translation \u2192 source, layer 0, head 1</caption>" in table
    )
    cells = [re.findall("<t[hd].*?>(.*?)</t[hd]>", row) for row in table.split("<tr>")]
    cells = [[re.sub("<.*?>", "", cell) for cell in row] for row in cells[1:]]
    assert cells[0] == ["word", "attended most to", *map(html.escape, SOURCE_WORDS)]
    weights = seen.scores["cross"][0, 1]
    for word, row, expected in zip(TARGET_WORDS, cells[1:], weights, strict=True):
        most = SOURCE_WORDS[np.argmax(expected)]
        assert row[:2] == [html.escape(word), html.escape(most)]
        percents = [int(cell.removesuffix("%")) for cell in row[2:]]
        np.testing.assert_allclose(percents, 100 * expected, atol=0.56)


class Outline(html.parser.HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.elements = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def named(self, tag):
        return [attributes for each, attributes in self.elements if each == tag]


def test_a_page_has_a_language_a_heading_and_labels(browse):
    page = attention_html(*aligned())
    outline = Outline(browse(page))
    assert outline.named("html") == [{"lang": "en"}]
    for tag, count in (("main", 1), ("h1", 1), ("h2", 2), ("section", 2)):
        assert len(outline.named(tag)) == count
    ids = [each["id"] for _, each in outline.elements if "id" in each]
    assert len(ids) == len(set(ids))
    labelled = [
        each for tag, each in outline.elements if tag in ("section", "fieldset")
    ]
    for each in labelled:
        assert "aria-label" in each or each["aria-labelledby"] in ids
    assert all("aria-label" in each for each in outline.named("select"))
    assert "<noscript>" in page
    assert "transition" not in page.partition("</style>")[0]  # nothing moves


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ((), "Received: nothing"),
        ((None,), "Received: NoneType"),
        (([attended()],), "Received: list"),
    ],
)
def test_what_is_no_translation_is_refused(seen, message):
    with pytest.raises(ValueError, match=f"`translate_with_attention` re.*{message}"):
        attention_html(*seen)


@pytest.mark.parametrize("score", [-np.inf, np.nan])
def test_a_score_that_json_cannot_hold_is_refused(score):
    with pytest.raises(ValueError, match="not JSON compliant"):
        attention_html(attended()._replace(score=score))


def test_the_source_is_shown_without_its_language():
    seen = attended(source=["deu_Latn", *SOURCE])
    assert data_of(attention_html(seen))["source"] == "a dog."


def test_translations_that_cannot_be_compared_are_refused():
    seen = attended()
    with pytest.raises(
        ValueError, match="a name for each .* 1 names of 2 translations"
    ):
        attention_html(seen, seen, names=["one"])
    less = seen._replace(scores={"cross": seen.scores["cross"]})
    with pytest.raises(ValueError, match="the same kinds of scores in all"):
        attention_html(seen, less)
