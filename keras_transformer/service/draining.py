"""Ending the service without a failed request."""

import asyncio
import signal
from types import FrameType

from starlette.applications import Starlette

from keras_transformer.checks import optional

with optional("uvicorn", "serve", "The service"):
    import uvicorn


class DrainingServer(uvicorn.Server):
    """Runs the service, and drains it on SIGTERM before it ends.

    Until its clients have found another service, it answers, but `/readyz` says that it
    is not ready, and each answer closes its connection. Ctrl-C, or a second SIGTERM,
    ends the draining. Open requests are answered within `answer_seconds` after that.
    """

    def __init__(self, app: Starlette, drain_seconds: float, answer_seconds: int):
        settings: dict = {"ws": "none", "timeout_graceful_shutdown": answer_seconds}
        super().__init__(uvicorn.Config(app, log_level="warning", **settings))
        self._state = app.state
        self._drain_seconds = drain_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal; uvicorn calls it while its event loop runs."""
        end = super().handle_exit
        if sig != signal.SIGTERM or self._state.is_draining:
            end(sig, frame)
            return
        self._state.is_draining = True
        asyncio.get_running_loop().call_later(self._drain_seconds, end, sig, frame)
