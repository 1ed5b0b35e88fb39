"""Writes small files in the formats of others, and what the originals make of them.

Run it in an environment with torch, transformers, sentencepiece and protobuf:

    python tests/interop/make_fixtures.py tests/interop/fixtures

`make test-interop` sets up such an environment, and tests with what the script writes
there instead of the files that are kept.

It writes into that folder:

- `torch.tar.xz`: `archive.bin` and `older.bin`, tensors as `torch.save` writes them in
  its two formats, and `expected.npz`, the same tensors;
- `tokenizers.tar.xz`: a folder for each family of tokenizers with its files as Hugging
  Face has them, and `answers.json`, the ids and texts that the originals give;
- `models.tar.xz`: a small checkpoint of each family with random weights and its
  tokenizer, and in `answers.npz` and `answers.json` its logits and translations.

The tests of this folder read them without PyTorch.
"""
# ruff: noqa: RUF001  letters of other scripts

import io
import json
import random
import sys
import tarfile
import tempfile
from pathlib import Path

TARGET_TABLE = "target_vocab.json"
# Article 1 of the Universal Declaration of Human Rights.
SOURCE_LINES = [
    "All human beings are born free and equal in dignity and rights.",
    "They are endowed with reason and conscience and should act towards one another",
    "in a spirit of brotherhood.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Ils sont doués de raison et de conscience et doivent agir les uns envers les",
    "autres dans un esprit de fraternité.",
]
TARGET_LINES = [
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geist der",
    "Brüderlichkeit begegnen.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "人人生而自由,在尊严和权利上一律平等。",
]
HOSTILE_TEXTS = [
    "",
    " ",
    "   ",
    "All human beings",
    "  leading and trailing  ",
    "double  spaces   and\u00a0others\u2009of\u3000Unicode",
    "a tab\there\nand a line end\r\n",
    "\n",
    "emoji 🙂👩‍👩‍👧🇩🇪 in\u20e3 text",
    "combining e\u0301 A\u030a Z\u0351\u036b\u0343\u036a\u0302 marks",
    "zero\u200bwidth\u200c\u200d\ufeff characters\u00ad\u2060",
    "control\x00\x01\x1b[31m\x7f\x85 characters",
    "\u202eright to left\u202c שלום مرحبا",
    "unknown scripts 𓀀𓀁 ሰላም ꙮ ߊߋ",
    "ﬁne ½ ① ㎏ ＡＢＣ ｱｲ Ǆ ß İ ﷺ",
    "▁a▁b ▁▁ c",
    "Würde 人人 Все",
    "1234567890 3.14 1e-5",
    "<unknown> & <b>markup</b> {} \\ \u2028 \u2029",
    "\ufffd \U0010ffff \ue000",
    "human " * 16_667,
    "x" * 100_000,
    "ꙮ𓀀" * 500,
]
LANGUAGE_TEXTS = [
    ">>fra<< All human beings",
    ">>fra<<All",
    ">>fra<<",
    " >>fra<< a space before",
    "in the >>fra<< middle",
    ">>fra<< >>deu<< two",
    ">>xyz<< an unknown one",
    ">>two\nlines<< end",
    ">>",
    ">><<",
    ">>fra",
    "<<fra>> text",
]
NO_REPEATS = {"no_repeat_ngram_size": 2}
# The originals read special symbols from texts unless told to split them.
SPLIT = {"split_special_tokens": True}
SPECIAL_TEXTS = [
    "</s>",
    "All </s> human <pad> beings <unk>",
    "<s>All</s>",
    "__fr__ All human __de__",
    "fra_Latn All <mask> human",
    "<mask_1> All <unk_2>",
]


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    writers = {
        "torch": write_torch,
        "tokenizers": write_tokenizers,
        "models": write_models,
    }
    for name, write in writers.items():
        with tempfile.TemporaryDirectory() as written:
            write(Path(written))
            pack(Path(written), folder / f"{name}.tar.xz")


def pack(folder, path):
    """Packs a folder; equal files give equal archives."""
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in sorted(x for x in folder.rglob("*") if x.is_file()):
            entry = tarfile.TarInfo(str(file.relative_to(folder)))
            entry.size = file.stat().st_size
            archive.addfile(entry, io.BytesIO(file.read_bytes()))


# Tensors


def write_torch(folder):
    import numpy as np
    import torch

    numbers = torch.arange(2 * 3 * 5 * 7, dtype=torch.float32).reshape(2, 3, 5, 7)
    torch.manual_seed(7)
    layer = torch.nn.Linear(3, 5)
    state = layer.state_dict()  # an ordered dictionary with an attribute
    state.update(
        {
            "contiguous": numbers[0, 0].clone(),
            "shared": numbers,
            "slice": numbers[1, 1:, ::2, 3:],
            "transposed": numbers[0, 0].T,
            "expanded": torch.tensor([[3.0], [5.0]]).expand(2, 3),
            "parameter": torch.nn.Parameter(torch.tensor([7.0, -0.0, 1e-40])),
            "float16": torch.tensor([1.5, -2.0, 65504.0], dtype=torch.float16),
            "bfloat16": torch.tensor([[1.5], [-3e38]], dtype=torch.bfloat16).T,
            "float64": torch.tensor([1 / 3], dtype=torch.float64),
            "int64": torch.tensor([1 << 40, -3]),
            "bool": torch.tensor([True, False, True]),
            "scalar": torch.tensor(11.0),
            "empty": torch.zeros(0, 3),
        }
    )
    torch.save(state, folder / "archive.bin")
    torch.save(state, folder / "older.bin", _use_new_zipfile_serialization=False)
    expected = {}
    for name, tensor in state.items():
        tensor = tensor.detach()
        expected[name] = (
            tensor.float() if tensor.is_floating_point() else tensor
        ).numpy()
    np.savez(folder / "expected.npz", **expected)


# Tokenizers


def write_tokenizers(folder):
    writers = {
        "marian": write_marian,
        "marian_separate": write_separate_marian,
        "m2m_100": write_m2m_100,
        "nllb": write_nllb,
        "pegasus": write_pegasus,
    }
    for name, write in writers.items():
        (folder / name).mkdir()
        write(folder / name)


def train(path, lines, size, **settings):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **settings,
    )
    path.write_bytes(model.getvalue())
    return pieces_of(path)


def pieces_of(path):
    model = processor(path)
    return [model.id_to_piece(i) for i in range(model.vocab_size())]


def processor(path):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def write_marian(folder):
    from transformers import MarianTokenizer

    source = train(folder / "source.spm", SOURCE_LINES, 97)
    target = train(folder / "target.spm", TARGET_LINES, 127)
    known = ["</s>", "<unk>"]
    pieces = [x for x in dict.fromkeys([*source, *target]) if x not in (*known, "<s>")]
    random.Random(7).shuffle(pieces)
    # Not every subword of SentencePiece is in the table.
    table = [*known, *pieces[5:], ">>fra<<", ">>deu<<", "<pad>"]
    write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(table)})
    tokenizer = MarianTokenizer.from_pretrained(folder, **SPLIT)
    write_answers(folder, tokenizer, len(table))


def write_separate_marian(folder):
    from transformers import MarianTokenizer

    known = ["</s>", "<unk>"]
    for side, lines, name in (
        ("source", SOURCE_LINES, "vocab.json"),
        ("target", TARGET_LINES, "target_vocab.json"),
    ):
        pieces = train(folder / f"{side}.spm", lines, 97, model_type="bpe")
        table = [*known, *(x for x in pieces[3:][::-1]), "<pad>"]
        write_json(folder / name, {piece: i for i, piece in enumerate(table)})
    write_json(folder / "tokenizer_config.json", {"separate_vocabs": True})
    tokenizer = MarianTokenizer.from_pretrained(folder, separate_vocabs=True, **SPLIT)
    write_answers(folder, tokenizer, len(table))


def write_m2m_100(folder):
    from transformers import M2M100Tokenizer

    lines = SOURCE_LINES + TARGET_LINES
    pieces = train(folder / "sentencepiece.bpe.model", lines, 131)
    table = ["<s>", "<pad>", "</s>", "<unk>", *pieces[:2:-1]]
    write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(table)})
    settings = {"src_lang": "fr", "tgt_lang": "de"}
    write_json(folder / "tokenizer_config.json", settings)
    tokenizer = M2M100Tokenizer.from_pretrained(folder, **SPLIT, **settings)
    write_answers(folder, tokenizer, len(table))
    languages = dict(sorted(tokenizer.lang_token_to_id.items()))
    write_json(folder / "languages.json", languages)


def write_nllb(folder):
    from transformers import NllbTokenizer

    path = folder / "sentencepiece.bpe.model"
    pieces = train(path, SOURCE_LINES + TARGET_LINES, 131, model_type="bpe")
    languages = ["deu_Latn", "fra_Latn", "rus_Cyrl", "zho_Hans"]
    settings = {"src_lang": "fra_Latn", "tgt_lang": "deu_Latn"}
    tokenizer = NllbTokenizer.from_pretrained(
        folder, extra_special_tokens=languages, **SPLIT, **settings
    )
    write_answers(folder, tokenizer, len(pieces) + 1)
    ids = tokenizer.convert_tokens_to_ids([*languages, "<mask>"])
    write_json(folder / "languages.json", dict(zip(languages, ids, strict=False)))


def write_pegasus(folder):
    from transformers import PegasusTokenizer

    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    train(folder / "spiece.model", SOURCE_LINES + TARGET_LINES, 131, **ids)
    tokenizer = PegasusTokenizer.from_pretrained(folder)  # does not know SPLIT
    write_answers(folder, tokenizer, 200, special_texts=[])


def write_answers(folder, tokenizer, size, special_texts=SPECIAL_TEXTS):
    """Writes the ids of texts, and the texts of ids drawn at random."""
    texts = [*HOSTILE_TEXTS, *LANGUAGE_TEXTS, *special_texts]
    draw = random.Random(size)
    rows = [[draw.randrange(size) for _ in range(n)] for n in (1, 2, 3, 5, 7, 11) * 5]
    answers = {
        "texts": texts,
        "ids": tokenizer(texts)["input_ids"],
        "target_ids": tokenizer(text_target=texts)["input_ids"],
        "rows": rows,
        "row_texts": tokenizer.batch_decode(rows, skip_special_tokens=True),
    }
    write_json(folder / "answers.json", answers)


# Models

SIZES = {
    "d_model": 8,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "max_position_embeddings": 64,
    "dropout": 0.3,
}
TEXTS = [
    "All human beings are born free",
    "in dignity",
    "Ils sont doués de raison et de conscience, 人人生而自由, and should act",
]


def write_models(folder):
    import transformers as hf

    marian = {
        **SIZES,
        "activation_function": "swish",
        "scale_embedding": True,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
    }
    for name, is_shared in (("marian", True), ("marian_separate", False)):
        (folder / name).mkdir()
        (write_marian if is_shared else write_separate_marian)(folder / name)
        size, target_size = (
            len(json.loads((folder / name / file).read_text("utf-8")))
            for file in ("vocab.json", "vocab.json" if is_shared else TARGET_TABLE)
        )
        config = hf.MarianConfig(
            **marian,
            vocab_size=size,
            decoder_vocab_size=target_size,
            share_encoder_decoder_embeddings=is_shared,
            pad_token_id=target_size - 1,
            decoder_start_token_id=target_size - 1,
        )
        tokenizer = hf.MarianTokenizer.from_pretrained(
            folder / name, separate_vocabs=not is_shared
        )
        # As those of OPUS-MT have it: what remains without padding sums to one.
        search = NO_REPEATS if is_shared else {"renormalize_logits": True}
        write_model(folder / name, hf.MarianMTModel(config), tokenizer, search)
    for name, write, kind in (
        ("m2m_100", write_m2m_100, hf.M2M100Tokenizer),
        ("nllb", write_nllb, hf.NllbTokenizer),
    ):
        (folder / name).mkdir()
        write(folder / name)
        languages = json.loads((folder / name / "languages.json").read_text("utf-8"))
        settings = {"src_lang": "fr", "tgt_lang": "de"}
        if name == "nllb":
            settings = {"src_lang": "fra_Latn", "tgt_lang": "deu_Latn"}
            settings["extra_special_tokens"] = [*languages]
        tokenizer = kind.from_pretrained(folder / name, **settings)
        tokenizer.save_pretrained(folder / name)
        if name == "m2m_100":  # as published checkpoints have it
            special = {"additional_special_tokens": [*languages]}
            write_json(folder / name / "special_tokens_map.json", special)
        config = hf.M2M100Config(**SIZES, vocab_size=max(languages.values()) + 5)
        first = tokenizer.convert_tokens_to_ids(
            "__de__" if name == "m2m_100" else "deu_Latn"
        )
        model = hf.M2M100ForConditionalGeneration(config)
        how = {"forced_bos_token_id": first}
        num_subwords = min(languages.values())
        write_model(folder / name, model, tokenizer, num_subwords=num_subwords, **how)
    (folder / "pegasus").mkdir()
    write_pegasus(folder / "pegasus")
    tokenizer = hf.PegasusTokenizer.from_pretrained(folder / "pegasus")
    config = hf.PegasusConfig(
        **SIZES,
        vocab_size=len(tokenizer),
        scale_embedding=True,
        activation_function="gelu",
        forced_eos_token_id=None,
    )
    model = hf.PegasusForConditionalGeneration(config)
    write_model(folder / "pegasus", model, tokenizer)


def write_model(
    folder, model, tokenizer, search=NO_REPEATS, num_subwords=10_000, **generation
):
    """Writes a checkpoint with drawn weights, its logits and its translations.

    Its generation_config.json has `search`; `generation` is given to `generate`.
    Ids from `num_subwords` on, of languages and of nothing, are left out of texts.
    """
    import numpy as np
    import torch

    torch.manual_seed(7)
    for name, tensor in model.state_dict().items():
        if "embed_positions" in name or "layer_norm.weight" in name:
            continue
        # Distributions are peaked, no two words nearly tied, and sentences end.
        scale = 0.5 if tensor.ndim > 1 else 0.2
        scale = 1.0 if "encoder_attn" in name else scale
        scale = 0.4 if "shared" in name or "embed_tokens" in name else scale
        tensor.normal_(0, scale)
        if "shared" in name or "embed_tokens" in name:
            tensor[model.config.eos_token_id] *= 1.5
    model.tie_weights()
    model.eval()
    beams = {"num_beams": 4, "length_penalty": 0.8}
    pad = model.config.pad_token_id
    model.generation_config.update(bad_words_ids=[[pad]], **beams, **search)
    for file in ("answers.json", "languages.json"):  # of the tokenizer alone
        (folder / file).unlink(missing_ok=True)
    model.save_pretrained(folder)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        how = {"max_new_tokens": 24, "early_stopping": "never", **generation}
        greedy = model.generate(**batch, num_beams=1, **how)
        beam = model.generate(
            **batch,
            num_return_sequences=4,
            return_dict_in_generate=True,
            output_scores=True,
            **how,
        )
        logits = model(**batch, decoder_input_ids=greedy).logits

    def texts(ids):
        rows = [[i for i in row if i < num_subwords] for row in ids.tolist()]
        return tokenizer.batch_decode(rows, skip_special_tokens=True)

    arrays = {
        "source_ids": batch["input_ids"],
        "target_ids": greedy,
        "logits": logits[:, :4],
        "beam_ids": beam.sequences,
        "beam_scores": beam.sequences_scores,
    }
    np.savez_compressed(
        folder / "answers.npz", **{name: x.numpy() for name, x in arrays.items()}
    )
    answers = {"texts": TEXTS, "greedy": texts(greedy), "beam": texts(beam.sequences)}
    write_json(folder / "answers.json", answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
