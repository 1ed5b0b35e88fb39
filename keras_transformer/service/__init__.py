"""A translation service over HTTP, for trying a translator and for small teams."""

from keras_transformer.checks import optional

with (
    optional("prometheus_client", "serve", "The service"),
    optional("py3langid", "serve", "The service"),
    optional("starlette", "serve", "The service"),
):
    from keras_transformer.service.app import make_app
    from keras_transformer.service.requests import Limits

__all__ = ["Limits", "make_app"]
