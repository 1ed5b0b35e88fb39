"""Downloads, from an endpoint on this machine that answers as the Hub does."""

import errno
import http.server
import json
import os
import subprocess
import sys
import threading

import pytest

from keras_transformer.interop import hub

pytest.importorskip("huggingface_hub")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "user/new": {"config.json": b"{}", "model.safetensors": b"1", "source.spm": b"2"},
    "user/old": {"config.json": b"{}", "pytorch_model.bin": b"3"},
    "user/saved": {"model.keras": b"5", "translator.json": b"{}"},
    "user/both": {"model.safetensors": b"1", "pytorch_model.bin": b"3"},
    "user/other": {"config.json": b"{}", "tf_model.h5": b"4", "script.py": b"5"},
}
ERRORS = {
    "user/gated": (403, "GatedRepo"),
    "user/missing": (404, "RepoNotFound"),
    "user/failing": (500, "Failure"),
}
# Prints what `preset_folder` does with each argument. Under the shell's name, the
# package does not import Keras.
SCRIPT = """
import json, sys
sys.argv[0] = "keras-transformer"
from keras_transformer.interop.hub import preset_folder
found = {}
for where in sys.argv[1:]:
    try:
        folder = preset_folder(where)
        found[where] = {file.name: file.read_text() for file in folder.iterdir()}
    except Exception as error:
        found[where] = [type(error).__name__, str(error)]
print(json.dumps(found))
"""


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Answers the few requests that a download makes."""

    def do_GET(self):
        parts = self.path.partition("?")[0].removeprefix("/api/models").split("/")[1:]
        name, *rest = "/".join(parts[:2]), *parts[2:]
        if name == "user/dropping":
            self.close_connection = True
        elif name in ERRORS:
            self.answer(b"{}", *ERRORS[name])
        elif name not in FILES:
            self.answer(b"{}", 404)
        elif rest[0] == "resolve":
            self.answer(FILES[name][rest[-1]])
        elif rest[1] not in ("main", COMMIT):
            self.answer(b"{}", 404, "RevisionNotFound")
        elif rest[0] == "tree":
            files = FILES[name].items()
            entry = {"type": "file", "oid": COMMIT}
            files = [{**entry, "path": path, "size": len(x)} for path, x in files]
            self.answer(json.dumps(files).encode())
        else:
            files = [{"rfilename": path} for path in FILES[name]]
            entry = {"id": name, "sha": COMMIT, "siblings": files}
            self.answer(json.dumps(entry).encode())

    do_HEAD = do_GET

    def answer(self, body, status=200, code=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{body.hex()}"')
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        """Writes nothing."""


@pytest.fixture(scope="module")
def endpoint():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def results(cache, where, **environment):
    """What `preset_folder` gives in a process with a cache of its own."""
    environment |= {"HF_HOME": str(cache), "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-c", SCRIPT, *where]
    done = subprocess.run(
        command, capture_output=True, env=os.environ | environment, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def online(endpoint, cache):
    where = [*FILES, f"user/new@{COMMIT}", "user/new@v7", *ERRORS, "user/dropping"]
    where = [f"hf://{one}" for one in [*where, "a/b/c", "", "user/new/"]]
    return results(cache, where, HF_ENDPOINT=endpoint)


NEW = {"config.json": "{}", "model.safetensors": "1", "source.spm": "2"}


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("user/new", NEW),
        ("user/old", {"config.json": "{}", "pytorch_model.bin": "3"}),
        ("user/saved", {"model.keras": "5", "translator.json": "{}"}),
        ("user/both", {"model.safetensors": "1"}),
        ("user/other", {"config.json": "{}"}),
        (f"user/new@{COMMIT}", NEW),
    ],
)
def test_only_what_can_be_read_is_downloaded(online, where, files):
    assert online[f"hf://{where}"] == files


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ("user/gated", "PermissionError", "is gated. Accept its terms on https://"),
        ("user/missing", "FileNotFoundError", "does not exist, or is private."),
        ("user/new@v7", "FileNotFoundError", "has no revision 'v7'."),
        ("user/failing", "ConnectionError", "could not be downloaded"),
        ("user/dropping", "ConnectionError", "could not be downloaded"),
        ("a/b/c", "ValueError", "is not hf://user/model:"),
        ("", "ValueError", "is not hf://user/model:"),
        ("user/new/", "ValueError", "is not hf://user/model:"),
    ],
)
def test_what_cannot_be_downloaded_is_told_in_one_line(online, where, error, message):
    name, text = online[f"hf://{where}"]
    assert name == error
    assert text.startswith(f"hf://{where} {message}")
    assert "\n" not in text


@pytest.mark.quick("True")
@pytest.mark.parametrize("offline", [True, False])
def test_offline_the_cache_is_read(online, cache, offline):
    # No server listens on port 9.
    settings = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": f"{offline:d}"}
    kept, never = "hf://user/old", "hf://user/never"
    found = results(cache, [kept, never], **settings)
    assert found[kept] == online[kept]
    name, text = found[never]
    assert name == "ConnectionError"
    assert "could not be downloaded, and the cache has no copy of it" in text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fails_is_told_as_such(monkeypatch, number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        hub.preset_folder("hf://user/new")


# What needs no Hub


def test_a_folder_is_itself(tmp_path):
    assert hub.preset_folder(tmp_path) == tmp_path
    assert hub.preset_folder(str(tmp_path)) == tmp_path


def test_what_is_not_a_folder_is_told(tmp_path):
    (tmp_path / "file").touch()
    for where in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(
            FileNotFoundError, match=r"is not a folder\. Pass the folder"
        ):
            hub.preset_folder(where)
