"""Time to translate a file: our command, and CTranslate2 with the same weights.

    python benchmarks/translate_file.py convert TRANSLATOR FOLDER
    time keras-transformer translate TRANSLATOR FILE --output ours.txt --beam-width 1
    time python benchmarks/translate_file.py ctranslate2 FOLDER FILE theirs.txt

TRANSLATOR is the folder of a saved pre-norm `Translator` with one vocabulary for both
languages. `convert` needs only this library, and writes the tokenizer and the weights
to FOLDER. `ctranslate2` needs CTranslate2, SentencePiece and NumPy. Its first call
builds the model from these files: do not time that call.
"""

import argparse
import pathlib
import time

import numpy as np


def write_weights(translator, folder):
    """Writes the tokenizer, and the weights under the names of CTranslate2's layers."""
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

    def attention(name, layer, residual, joins_query):
        # CTranslate2 joins key and value; in self-attention the query as well.
        query = layer.query_projection
        key_value = [layer.key_projection, layer.value_projection]
        groups = [[query, *key_value]] if joins_query else [[query], key_value]
        for index, group in enumerate([*groups, [layer.output_projection]]):
            linear(f"{name}/linear_{index}", *group)
        norm(f"{name}/layer_norm", residual._norm)

    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        norm(f"{side}/layer_norm", stack._norm)
        for index, block in enumerate(stack.blocks):
            name = f"{side}/layer_{index}"
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
    """Builds and saves CTranslate2's model from the weights."""
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
            if hasattr(layer, step):
                layer = getattr(layer, step)
            else:  # an element of a list, such as "layer_3"
                list_name, _, index = step.rpartition("_")
                layer = getattr(layer, list_name)[int(index)]
        setattr(layer, last, weight)
    tokenizer = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size())]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
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
    results = translator.translate_batch(
        source, max_batch_size=32, beam_size=beam_width, max_decoding_length=128
    )
    pieces = [result.hypotheses[0] for result in results]
    output.write_text(
        "".join(f"{line}\n" for line in tokenizer.decode(pieces)), "utf-8"
    )
    print(f"{len(lines)} lines, {time.perf_counter() - start:.1f} s after imports")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    subparsers = parser.add_subparsers(dest="command", required=True)
    convert = subparsers.add_parser("convert")
    convert.add_argument("translator", type=pathlib.Path)
    convert.add_argument("folder", type=pathlib.Path)
    run = subparsers.add_parser("ctranslate2")
    for name in ("folder", "text", "output"):
        run.add_argument(name, type=pathlib.Path)
    run.add_argument("--beam-width", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.command == "convert":
        write_weights(arguments.translator, arguments.folder)
        return
    if not (arguments.folder / "ctranslate2").exists():
        build(arguments.folder)
    translate(arguments.folder, arguments.text, arguments.output, arguments.beam_width)


if __name__ == "__main__":
    main()
