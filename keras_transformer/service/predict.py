"""The REST dialect of TensorFlow Serving, which is KServe's V1 protocol, too.

Requests and answers are those of a model that `Translator.export` wrote, which
TensorFlow Serving serves.

Reference:
    https://github.com/tensorflow/serving/blob/master/tensorflow_serving/g3doc/api_rest.md,
    https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol
"""

import math
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.routing import Route

from keras_transformer.service.directions import Direction
from keras_transformer.service.requests import (
    Limits,
    json_response,
    quoted,
    read_body,
    read_json,
)

# The inputs of each signature.
_SIGNATURES = {
    "serving_default": ["text"],
    "translate_n_best": ["text"],
    "align": ["text", "target"],
}


def predict_routes(directions: Mapping[str, Direction], limits: Limits) -> list:
    """Returns the routes of the dialect; the names of directions are its models."""

    def direction_of(request):
        name = request.path_params["name"]
        if name not in directions:
            raise HTTPException(
                404,
                f"The model must be {_one_of(directions)}. Received: {quoted(name)}.",
            )
        return directions[name]

    async def models(request):
        return json_response({"models": [*directions]})

    async def model(request):
        # What TensorFlow Serving answers, and what KServe does.
        status = {"error_code": "OK", "error_message": ""}
        version = {"version": "1", "state": "AVAILABLE", "status": status}
        name = direction_of(request).name
        return json_response(
            {"model_version_status": [version], "name": name, "ready": True}
        )

    async def predict(request):
        direction = direction_of(request)
        body = read_json(await read_body(request, limits))
        signature = body.get("signature_name", "serving_default")
        served = [x for x in _SIGNATURES if x != "align" or direction.aligns]
        if signature not in served:
            raise HTTPException(
                400,
                f"`signature_name` must be {_one_of(served)}. "
                f"Received: {quoted(signature)}.",
            )
        if ("instances" in body) == ("inputs" in body):
            raise HTTPException(
                400,
                "The request must have either `instances`, a list of rows, or "
                "`inputs`, an object of columns.",
            )
        names = _SIGNATURES[signature]
        if "instances" in body:
            columns = _columns_of_rows(body["instances"], names)
        else:
            columns = _columns(body["inputs"], names)
        rows = await _predictions(direction, signature, columns)
        if "instances" in body:
            return json_response({"predictions": rows})
        outputs = {key: [row[key] for row in rows] for key in rows[0]}
        return json_response({"outputs": outputs})

    async def other(request):
        # Beside `{name}`, which would match it with its verb.
        verb = request.path_params["verb"]
        if verb == "predict":
            raise HTTPException(405, headers={"Allow": "POST"})
        raise HTTPException(404, f"Models do not {quoted(verb)}: ask for :predict.")

    verbs = ["GET", "POST"]
    return [
        Route("/v1/models", models),
        Route("/v1/models/{name}:predict", predict, methods=["POST"]),
        Route("/v1/models/{name}:{verb}", other, methods=verbs),
        Route("/v1/models/{name}", model),
    ]


def _columns(inputs, names):
    """Returns the texts of each input; a list is that of the only input."""
    if isinstance(inputs, list) and len(names) == 1:
        inputs = {names[0]: inputs}
    wanted = f"`inputs` must be an object of {_one_of(names, 'and')}, lists of texts"
    if not isinstance(inputs, dict) or set(inputs) != set(names):
        raise HTTPException(400, f"{wanted}. Received: {quoted(inputs)}.")
    columns = [inputs[name] for name in names]
    for name, texts in zip(names, columns, strict=True):
        if not isinstance(texts, list) or not texts:
            raise HTTPException(
                400,
                f"`{name}` must be a list of one or more texts. "
                f"Received: {quoted(texts)}.",
            )
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise HTTPException(
                    400, f"`{name}[{index}]` must be a text. Received: {quoted(text)}."
                )
    if len(set(map(len, columns))) > 1:
        raise HTTPException(400, f"{wanted} of one length.")
    return columns


def _columns_of_rows(instances, names):
    """Returns the texts of each input; a row of the only input may be a text alone."""
    if not isinstance(instances, list) or not instances:
        raise HTTPException(
            400,
            "`instances` must be a list of one or more rows. "
            f"Received: {quoted(instances)}.",
        )
    if len(names) == 1:
        instances = [{names[0]: x} if isinstance(x, str) else x for x in instances]
    for index, row in enumerate(instances):
        if (
            not isinstance(row, dict)
            or set(row) != set(names)
            or not all(isinstance(text, str) for text in row.values())
        ):
            raise HTTPException(
                400,
                f"`instances[{index}]` must be an object of "
                f"{_one_of(names, 'and')}, each a text. Received: {quoted(row)}.",
            )
    return [[row[name] for row in instances] for name in names]


async def _predictions(direction, signature, columns):
    """Returns the outputs of a signature for each row."""
    if signature == "align":
        return [
            {
                "spans": [[*pair.source, *pair.target] for pair in pairs],
                "weights": [pair.weight for pair in pairs],
            }
            for pairs in await direction.align(*columns)
        ]
    found = await direction.translate(*columns, "text")
    if signature == "serving_default":
        return [{"translation": x.text, "score": _finite(x.score)} for x, *_ in found]
    return [
        {
            "translations": [x.text for x in row],
            "scores": [_finite(x.score) for x in row],
        }
        for row in found
    ]


def _one_of(names, word="or"):
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} {word} {last}" if first else last


def _finite(score):
    """Returns a score, or None, since JSON has no infinity."""
    return score if math.isfinite(score) else None
