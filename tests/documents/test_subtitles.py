from documents.formats import changed, plain_texts_of, texts_of

SRT = """1
00:00:01,000 --> 00:00:02,500 X1:10 X2:20
{\\an8}<i>one</i>\\Ntwo &copy=2 <3 <x>
2
00:00:03,000-->00:00:04,000
three

after a blank
3
00:00:05,000 --> 00:00:06,000

00:00:07,000 --> 00:00:08,000
{\\i1}four{\\i0} <font color="red">five</font>
1972
"""
VTT = """WEBVTT

STYLE
::cue(b) { color: red }

NOTE not a text

intro
00:01.000 --> 00:02.500 align:start
<v Roger Bingham>one <00:01.500>two</v> <c.y.z>three</c> &amp; &nbsp;four &lt;b&gt;

no text

00:03.000 --> 00:04.000
five
six
"""


def test_a_text_of_srt_ends_where_the_next_cue_begins():
    assert plain_texts_of(SRT, "srt") == [
        "\nonetwo &copy=2 <3 <x>\n",
        "\nthree\n\nafter a blank\n",
        "\nfour five\n1972\n",
    ]


def test_all_but_the_texts_of_srt_stays():
    expected = SRT
    for word in ("one", "two &copy", "x", "three", "after a blank", "four", "five"):
        before = {"x": "<x>", "five": ">five<"}.get(word, word)
        expected = expected.replace(before, before.upper())
    assert changed(SRT, "srt") == expected
    assert changed(SRT.replace("\n", "\r\n"), "srt") == expected.replace("\n", "\r\n")


def test_texts_of_webvtt_end_with_a_blank_line_and_have_tags_and_entities():
    one, two = plain_texts_of(VTT, "vtt")
    assert one == "\none two three & \xa0four <b>"
    assert two == "\nfive\nsix\n"
    expected = VTT
    for word in ("one ", "two", "three", "four", "five", "six"):
        expected = expected.replace(word, word.upper())
    expected = expected.replace("&lt;b&gt;", "&lt;B&gt;")
    assert changed(VTT, "vtt") == expected


def test_subtitles_may_be_in_utf_16():
    data = SRT.encode("utf-16")
    assert texts_of(data, "srt") == texts_of(SRT, "srt")
