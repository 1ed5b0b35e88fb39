"""The REST dialect of TensorFlow Serving, which is KServe's V1 protocol, too.

Requests and answers are the same as when TensorFlow Serving serves a model that
`Translator.export` wrote.

Reference:
    https://github.com/tensorflow/serving/blob/master/tensorflow_serving/g3doc/api_rest.md,
    https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol
"""

import math
from collections.abc import Collection, Mapping

from starlette.exceptions import HTTPException
from starlette.routing import Route

from keras_transformer.markup import plain_text
from keras_transformer.service.directions import Direction, plain_document
from keras_transformer.service.requests import (
    Limits,
    check_key,
    json_response,
    quoted,
    read_body,
    read_json,
    refusal,
)


def predict_routes(
    directions: Mapping[str, Direction], limits: Limits, api_keys: Collection[str]
) -> list:
    """Returns the routes of the dialect; the names of directions are its models."""

    def direction_of(request):
        name = request.path_params["name"]
        if name not in directions:
            raise refusal(f"The model must be {_one_of(directions)}", name, 404)
        for kind, only in (("version", "1"), ("label", "stable")):
            asked = request.path_params.get(kind, only)
            if asked != only:
                raise refusal(f"The {kind} must be {only}", asked, 404)
        request.state.model = name
        return directions[name]

    async def models(request):
        return json_response({"models": [*directions]})

    async def model(request):
        # What TensorFlow Serving answers, and what KServe does.
        status = {"error_code": "OK", "error_message": ""}
        version = {"version": "1", "state": "AVAILABLE", "status": status}
        answer = {"model_version_status": [version], "ready": True}
        return json_response({**answer, "name": direction_of(request).name})

    async def predict(request):
        check_key(request, api_keys)
        direction = direction_of(request)
        body = read_json(await read_body(request, limits))
        signature = body.get("signature_name", "serving_default")
        served = ["serving_default", "translate_n_best"]
        served += filter(direction.can, ["score", "align", "translate_ids"])
        if signature not in served:
            raise refusal(f"`signature_name` must be {_one_of(served)}", signature)
        if ("instances" in body) == ("inputs" in body):
            wanted = "`instances`, a list of rows, or `inputs`, an object of columns"
            raise HTTPException(400, f"The request must have either {wanted}.")
        names = ["text", "target"] if signature in ("score", "align") else ["text"]
        names = ["source_ids"] if signature == "translate_ids" else names
        if "instances" in body:
            columns = _columns_of_rows(body["instances"], names)
            rows = await _predictions(direction, signature, columns)
            return json_response({"predictions": rows})
        columns = _columns(body["inputs"], names)
        rows = await _predictions(direction, signature, columns)
        outputs = {key: [row[key] for row in rows] for key in rows[0]}
        return json_response({"outputs": outputs})

    async def other(request):
        # Beside `{name}`, which would match it with its verb.
        verb = request.path_params["verb"]
        if verb == "predict":
            raise HTTPException(405, headers={"Allow": "POST"})
        raise HTTPException(404, f"Models do not {quoted(verb)}: ask for :predict.")

    routes = [Route("/v1/models", models)]
    for rest in ("", "/versions/{version}", "/labels/{label}"):
        path = "/v1/models/{name}" + rest
        routes += [
            Route(f"{path}:predict", predict, methods=["POST"]),
            Route(f"{path}:{{verb}}", other, methods=["GET", "POST"]),
            Route(path, model),
        ]
    return routes


def _columns(inputs, names):
    """Returns the values of each input; a list belongs to the only input."""
    if isinstance(inputs, list) and len(names) == 1:
        inputs = {names[0]: inputs}
    one, several = _kind_of(names)
    wanted = (
        f"`inputs` must be an object of {_one_of(names, 'and')}, lists of {several}"
    )
    if not isinstance(inputs, dict) or set(inputs) != set(names):
        raise refusal(wanted, inputs)
    columns = [inputs[name] for name in names]
    for name, values in zip(names, columns, strict=True):
        if not isinstance(values, list) or not values:
            raise refusal(f"`{name}` must be a list of one or more {several}", values)
        for index, value in enumerate(values):
            if not _is_of_kind(one, value):
                raise refusal(f"`{name}[{index}]` must be {one}", value)
    if len(set(map(len, columns))) > 1:
        raise HTTPException(400, f"{wanted} of one length.")
    return columns


def _columns_of_rows(instances, names):
    """Returns the values of each input; a row may be the value of the only input."""
    one, _ = _kind_of(names)
    if not isinstance(instances, list) or not instances:
        raise refusal("`instances` must be a list of one or more rows", instances)
    if len(names) == 1:
        name = names[0]
        instances = [{name: x} if _is_of_kind(one, x) else x for x in instances]
    for index, row in enumerate(instances):
        is_row = isinstance(row, dict) and set(row) == set(names)
        if not is_row or not all(_is_of_kind(one, x) for x in row.values()):
            wanted = f"an object of {_one_of(names, 'and')}, each {one}"
            raise refusal(f"`instances[{index}]` must be {wanted}", row)
    return [[row[name] for row in instances] for name in names]


def _kind_of(names):
    is_ids = names == ["source_ids"]
    return ("a list of ids", "lists of ids") if is_ids else ("a text", "texts")


def _is_of_kind(kind, value):
    if kind == "a text":
        return isinstance(value, str)
    is_list = isinstance(value, list)
    return is_list and all(type(x) is int and abs(x) < 1 << 31 for x in value)


async def _predictions(direction, signature, columns):
    """Returns the outputs of a signature for each row."""
    if signature == "align":
        return [
            {
                "spans": [[*pair.source, *pair.target] for pair in pairs],
                "weights": [pair.weight for pair in pairs],
            }
            for pairs in await direction.of_pairs("align", *columns)
        ]
    if signature == "score":
        return [
            {"log_probability": _finite(found.log_probability), "tokens": found.tokens}
            for found in await direction.of_pairs("score", *columns)
        ]
    if signature == "translate_ids":
        found = await direction.translate_ids(*columns)
        longest = max(len(ids) for ids, _ in found)
        pad_id = direction.translator.target_tokenizer.pad_id
        return [
            {"ids": ids + [pad_id] * (longest - len(ids)), "score": _finite(score)}
            for ids, score in found
        ]
    (texts,) = columns
    direction.limits.check_texts(texts, "text")
    found = await direction.translate(list(map(plain_document, texts)))
    rows = [
        [(plain_text(x), _finite(score), flags) for (x,), score, flags in row]
        for row in found
    ]
    if signature == "serving_default":
        return [{"translation": text, "score": score} for (text, score, _), *_ in rows]
    # `flags` is not an output of an export.
    names = "translations", "scores", "flags"
    return [dict(zip(names, zip(*row, strict=True), strict=True)) for row in rows]


def _finite(score):
    return score if math.isfinite(score) else None  # JSON has no infinity


def _one_of(names, word="or"):
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} {word} {last}" if first else last
