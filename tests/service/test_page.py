"""The page of the service, in a browser."""

import html
import os
import re
import shutil
import socket
import subprocess
import threading

import pytest
import uvicorn
from service.served import Aligning
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from keras_transformer.service import Limits, make_app

pytestmark = pytest.mark.slow
BROWSERS = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browse(engine, tmp_path_factory):
    """Function that opens the page, acts on it, and returns what it then shows.

    Its service translates from English to German with alignments, and back without.
    """
    found = [path for name in BROWSERS if name and (path := shutil.which(name))]
    if not found:
        pytest.skip("No Chromium here: install it, or name it in CHROMIUM.")
    translators = {("en", "de"): Aligning(engine), ("de", "he"): engine}
    app = make_app(translators, Limits(characters=99))
    scripts = {}

    async def acted_on(request):
        script = scripts[request.path_params["name"]]
        page = TestClient(app).get("/").text
        return HTMLResponse(
            page.replace("</body>", f"<script>{script}</script></body>")
        )

    routes = [Route("/sub/{name}.html", acted_on), Mount("/sub", app)]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error"))
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    profile = tmp_path_factory.mktemp("browser")

    def browse(text, script="", *options):
        name = f"page{len(scripts)}"
        scripts[name] = f"""
        const appeared = (name) => new Promise((resolve) => {{
          const look = () =>
            document.querySelector(name) ? resolve() : setTimeout(look, 9);
          look();
        }});
        const press = (key) => document.activeElement.dispatchEvent(
          new KeyboardEvent("keydown", {{key, bubbles: true, cancelable: true}}));
        const type = (text) => {{
          byId("text").value = text;
          byId("text").dispatchEvent(new Event("input"));
        }};
        type({text!r});
        {script}
        """
        address = f"http://127.0.0.1:{bound.getsockname()[1]}/sub/{name}.html"
        done = subprocess.run(
            [
                found[0],
                "--headless",
                "--no-sandbox",  # which root may not have
                "--disable-dev-shm-usage",
                f"--user-data-dir={profile}",
                "--virtual-time-budget=5000",
                *(options or ["--dump-dom"]),
                address,
            ],
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        return done.stdout

    yield browse
    server.should_exit = True
    thread.join()


def shown(dom, pattern):
    """Returns the texts of the elements that a pattern finds."""
    found = re.findall(pattern, dom, re.DOTALL)
    return [html.unescape(re.sub("<.*?>", "", each)) for each in found]


def test_what_is_typed_is_translated_with_every_hypothesis(browse, engine):
    dom = browse("two dog\n\na <b> & bike")
    rows = [engine.translate_n_best([text])[0] for text in ("two dog", "a <b> & bike")]
    best = f"{rows[0][0].text}\n\n{rows[1][0].text}"
    assert shown(dom, "<output.*?</output>") == [best]
    listed = [f"{x.text} {x.score:.2f}{''.join(x.flags)}" for row in rows for x in row]
    assert any(x.flags for row in rows for x in row)
    assert shown(dom, "<li>.*?</li>") == listed
    assert shown(dom, '<p lang="en".*?</p>') == ["two dog", "a <b> & bike"]


def test_words_that_are_aligned_are_highlighted_by_the_keyboard(browse, engine):
    dom = browse(
        "two dog plays",
        """
        appeared("li:last-child .word").then(() => {
          document.querySelector(".word[tabindex='0']").focus();
          press("ArrowLeft");
          press("ArrowRight");
        });
        """,
    )
    second = [
        words[1]
        for x in engine.translate_n_best(["two dog plays"])[0]
        if len(words := x.text.split()) > 1
    ]
    assert second
    pattern = r'<button [^>]*class="word aligned"[^>]*>.*?</button>'
    assert shown(dom, pattern) == ["dog", *second]
    label = f"dog: {', '.join(dict.fromkeys(second))}"
    assert f'aria-label="{html.escape(label)}"' in dom
    # One word of each sentence can be reached with Tab: here the second one.
    source = re.search('<p lang="en".*?</p>', dom)[0]
    assert re.findall(r'tabindex="(-?\d)"', source) == ["-1", "0", "-1"]


def test_the_other_direction_names_its_languages_and_has_no_alignments(browse):
    dom = browse(
        "a dog",
        """
        byId("direction").selectedIndex = 1;
        byId("direction").dispatchEvent(new Event("change"));
        """,
    )
    assert shown(dom, "<option.*?</option>") == ["English → German", "German → Hebrew"]
    assert shown(dom, "<label for=.text.*?</label>") == ["Text in German"]
    assert shown(dom, "<h2 id=.heading.*?</h2>") == ["Translation in Hebrew"]
    assert re.search('<output [^>]*lang="he"', dom)
    assert re.search('<textarea [^>]*lang="de"', dom)
    assert len(re.findall("<li>", dom)) == 4
    assert 'class="word"' not in dom
    assert re.search('<span id="words" hidden', dom)


def test_an_error_is_announced_and_gone_with_the_next_text(browse):
    dom = browse("a" * 100)
    (fault,) = shown(dom, '<p id="fault" role="alert">.*?</p>')
    assert "at most 99 characters" in fault
    assert 'aria-busy="true"' not in dom
    typed = 'appeared("#fault:not(:empty)").then(() => type("a"));'
    dom = browse("a" * 100, typed)
    assert shown(dom, '<p id="fault" role="alert">.*?</p>') == [""]
    assert len(re.findall("<li>", dom)) == 4


def test_an_error_leaves_no_translation_of_another_text(browse):
    typed = f'appeared("li .word").then(() => type("{"a" * 100}"));'
    dom = browse("a dog", typed)
    assert "at most 99 characters" in dom
    assert shown(dom, "<output.*?</output>") == [""]
    assert "<li>" not in dom
    assert re.search('<button id="copy"[^>]* hidden', dom)


def test_a_translation_is_copied(browse):
    copied = """
    appeared("li").then(() => {
      byId("copy").click();
      document.title = getSelection();
    });
    """
    dom = browse("two dog", copied)
    (title,) = shown(dom, "<title>.*?</title>")
    assert [title] == shown(dom, "<output.*?</output>")
    assert title
    assert not re.search('<button id="copy"[^>]* hidden', dom)


def test_a_text_that_is_deleted_leaves_nothing(browse):
    dom = browse("a dog", 'appeared("li .word").then(() => type(" "));')
    assert shown(dom, "<output.*?</output>") == [" ".strip()]
    assert "<li>" not in dom
    assert re.search('<div id="details" hidden', dom)
