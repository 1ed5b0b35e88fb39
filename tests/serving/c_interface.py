"""Runs an export by the C interface of the TensorFlow library, without TensorFlow.

    python -I c_interface.py TENSORFLOW TENSORFLOW_TEXT EXPORT INPUT OUTPUT < texts

TENSORFLOW and TENSORFLOW_TEXT are the folders of the two packages, whose libraries are
loaded as any C program would load them. INPUT and OUTPUT are names of string tensors.
The texts are a JSON list, and so is the answer.
"""

import ctypes
import json
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

TF_STRING = 7
SIZE_OF_STRING = 24  # of TF_TString, which holds short texts in itself


class Output(ctypes.Structure):
    """`TF_Output`: a tensor of the graph."""

    _fields_ = [("operation", c_void_p), ("index", c_int)]


def open_library(tensorflow):
    """Returns the C interface, which raises when a call reports an error."""
    framework = next(tensorflow.glob("libtensorflow_framework.so*"))
    ctypes.CDLL(framework, ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(
        next(tensorflow.glob("libtensorflow_cc.so*")), ctypes.RTLD_GLOBAL
    )
    signatures = {
        "TF_NewStatus": (c_void_p,),
        "TF_GetCode": (c_int, c_void_p),
        "TF_Message": (c_char_p, c_void_p),
        "TF_LoadLibrary": (c_void_p, c_char_p, c_void_p),
        "TF_NewGraph": (c_void_p,),
        "TF_NewSessionOptions": (c_void_p,),
        "TF_LoadSessionFromSavedModel": (
            *(c_void_p, c_void_p, c_void_p, c_char_p, POINTER(c_char_p), c_int),
            *(c_void_p, c_void_p, c_void_p),
        ),
        "TF_GraphOperationByName": (c_void_p, c_void_p, c_char_p),
        "TF_AllocateTensor": (c_void_p, c_int, POINTER(c_int64), c_int, c_size_t),
        "TF_TensorData": (c_void_p, c_void_p),
        "TF_Dim": (c_int64, c_void_p, c_int),
        "TF_StringInit": (None, c_void_p),
        "TF_StringCopy": (None, c_void_p, c_char_p, c_size_t),
        "TF_StringGetDataPointer": (c_void_p, c_void_p),
        "TF_StringGetSize": (c_size_t, c_void_p),
        "TF_SessionRun": (
            *(None, c_void_p, c_void_p),
            *(POINTER(Output), POINTER(c_void_p), c_int) * 2,
            *(c_void_p, c_int, c_void_p, c_void_p),
        ),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Program:
    """What a C program would do."""

    def __init__(self, tensorflow, tensorflow_text):
        self.library = open_library(tensorflow)
        self.status = self.library.TF_NewStatus()
        ops = tensorflow_text / "python" / "ops" / "_sentencepiece_tokenizer.so"
        self.call("TF_LoadLibrary", bytes(ops))

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments, self.status)
        if self.library.TF_GetCode(self.status):
            raise RuntimeError(self.library.TF_Message(self.status).decode())
        return result

    def load(self, path):
        self.graph = self.library.TF_NewGraph()
        options = self.library.TF_NewSessionOptions()
        tags = (c_char_p * 1)(b"serve")
        self.session = self.call(
            "TF_LoadSessionFromSavedModel",
            *(options, None, path.encode(), tags, 1, self.graph, None),
        )

    def run(self, input_name, output_name, texts):
        fed, fetched = self.output(input_name), self.output(output_name)
        inputs, outputs = (c_void_p * 1)(self.tensor(texts)), (c_void_p * 1)()
        self.call(
            "TF_SessionRun",
            *(self.session, None, byref(fed), inputs, 1, byref(fetched), outputs, 1),
            *(None, 0, None),
        )
        return self.texts(outputs[0])

    def output(self, name):
        operation, _, index = name.partition(":")
        found = self.library.TF_GraphOperationByName(self.graph, operation.encode())
        return Output(found, int(index))

    def tensor(self, texts):
        shape, size = (c_int64 * 1)(len(texts)), len(texts) * SIZE_OF_STRING
        tensor = self.library.TF_AllocateTensor(TF_STRING, shape, 1, size)
        start = self.library.TF_TensorData(tensor)
        for index, text in enumerate(texts):
            place = start + index * SIZE_OF_STRING
            self.library.TF_StringInit(place)
            self.library.TF_StringCopy(place, text.encode(), len(text.encode()))
        return tensor

    def texts(self, tensor):
        start = self.library.TF_TensorData(tensor)
        for index in range(self.library.TF_Dim(tensor, 0)):
            place = start + index * SIZE_OF_STRING
            text = self.library.TF_StringGetDataPointer(place)
            size = self.library.TF_StringGetSize(place)
            yield ctypes.string_at(text, size).decode()


if __name__ == "__main__":
    tensorflow, tensorflow_text, path, input_name, output_name = sys.argv[1:]
    program = Program(Path(tensorflow), Path(tensorflow_text))
    program.load(path)
    translations = program.run(input_name, output_name, json.load(sys.stdin))
    json.dump(list(translations), sys.stdout)
    assert "tensorflow" not in sys.modules
