"""Translating a file: this library's shell, and CTranslate2 with the same weights.

    python benchmarks/translate_file.py convert TRANSLATOR FOLDER
    time keras-transformer translate TRANSLATOR FILE --output ours.txt --beam-width 1
    time python benchmarks/translate_file.py ctranslate2 FOLDER FILE theirs.txt

TRANSLATOR is the folder of a saved pre-norm `Translator` with one vocabulary for both
languages. `convert` needs this library alone, and writes FOLDER/weights.npz and the
tokenizer. `ctranslate2` needs CTranslate2, SentencePiece and NumPy, and builds its
model from these when it is first called: leave that call out of the timing.
"""

import argparse
import pathlib
import time

import numpy as np


def write_weights(translator, folder):
    """Writes the weights by the names of CTranslate2's layers, and the tokenizer."""
    import keras_transformer as kt

    translator = kt.Translator.load(translator)
    model = translator.model
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(translator.source_tokenizer.model_proto)
    weights = {"embeddings": model.source_embedding.embeddings}
    longest = 2 * translator.max_source_length + 1
    weights["positions"] = model.positions.encoding(longest)

    def linear(name, *layers):
        weights[f"{name}/weight"] = np.concatenate([x.kernel for x in layers], 1).T
        weights[f"{name}/bias"] = np.concatenate([x.bias for x in layers])

    def norm(name, layer):
        weights[f"{name}/gamma"], weights[f"{name}/beta"] = layer.gamma, layer.beta

    def attention(name, layer, residual, joined):
        parts = [layer.query_projection, layer.key_projection, layer.value_projection]
        groups = [parts] if joined else [parts[:1], parts[1:]]
        for place, group in enumerate([*groups, [layer.output_projection]]):
            linear(f"{name}/linear_{place}", *group)
        norm(f"{name}/layer_norm", residual._norm)

    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        norm(f"{side}/layer_norm", stack._norm)
        for place, block in enumerate(stack.blocks):
            name = f"{side}/layer_{place}"
            attention(
                *(f"{name}/self_attention", block._self_attention),
                *(block._self_attention_residual, True),
            )
            if side == "decoder":
                attention(
                    *(f"{name}/attention", block._cross_attention),
                    *(block._cross_attention_residual, False),
                )
            norm(f"{name}/ffn/layer_norm", block._transform_residual._norm)
            linear(f"{name}/ffn/linear_0", block._transform._widen)
            linear(f"{name}/ffn/linear_1", block._transform._narrow)
    weights = {name: np.asarray(weight) for name, weight in weights.items()}
    sizes = model.encoder.num_layers, model.encoder.num_heads
    np.savez(folder / "weights.npz", sizes=sizes, **weights)


def build(folder):
    """Writes CTranslate2's model from the weights."""
    import ctranslate2
    import sentencepiece

    weights = dict(np.load(folder / "weights.npz"))
    layers, heads = map(int, weights.pop("sizes"))
    spec = ctranslate2.specs.TransformerSpec.from_config(layers, heads, pre_norm=True)
    embeddings = weights.pop("embeddings")
    positions = weights.pop("positions")
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = positions
        table = side.embeddings
        table = table[0] if isinstance(table, list) else table
        table.weight, table.multiply_by_sqrt_depth = embeddings, True
    spec.decoder.projection.weight = embeddings
    for name, weight in weights.items():
        layer = spec
        *path, last = name.split("/")
        for step in path:
            stem, _, place = step.rpartition("_")
            if hasattr(layer, step):
                layer = getattr(layer, step)
            else:  # of a list, such as "layer_3"
                layer = getattr(layer, stem)[int(place)]
        setattr(layer, last, weight)
    tokenizer = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    words = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size())]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = "<s>"
    spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
    spec.config.layer_norm_epsilon = 1e-6
    spec.validate()
    spec.optimize()
    (folder / "ctranslate2").mkdir()
    spec.save(str(folder / "ctranslate2"))


def translate(folder, text, output, beam_width):
    import ctranslate2
    import sentencepiece

    start = time.perf_counter()
    tokenizer = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"), inter_threads=1, intra_threads=2
    )
    lines = text.read_text("utf-8").splitlines()
    source = [[*pieces, "</s>"] for pieces in tokenizer.encode(lines, out_type=str)]
    found = translator.translate_batch(
        source, max_batch_size=32, beam_size=beam_width, max_decoding_length=128
    )
    pieces = [one.hypotheses[0] for one in found]
    output.write_text(
        "".join(f"{line}\n" for line in tokenizer.decode(pieces)), "utf-8"
    )
    print(f"{len(lines)} lines, {time.perf_counter() - start:.1f} s after imports")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    subparsers = parser.add_subparsers(dest="what", required=True)
    convert = subparsers.add_parser("convert")
    convert.add_argument("translator", type=pathlib.Path)
    convert.add_argument("folder", type=pathlib.Path)
    run = subparsers.add_parser("ctranslate2")
    for name in ("folder", "text", "output"):
        run.add_argument(name, type=pathlib.Path)
    run.add_argument("--beam-width", type=int, default=1)
    given = parser.parse_args()
    if given.what == "convert":
        write_weights(given.translator, given.folder)
        return
    if not (given.folder / "ctranslate2").exists():
        build(given.folder)
    translate(given.folder, given.text, given.output, given.beam_width)


if __name__ == "__main__":
    main()
