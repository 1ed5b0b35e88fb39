"""Metadata of the package. The tools' settings are in pyproject.toml."""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
# Address of the files of a release, from the workflow that publishes it.
URL = os.environ.get("SOURCE_URL")
KERAS_HUB = [
    'keras-hub>=0.32; python_version >= "3.11"',
    'keras-hub>=0.25; python_version < "3.11"',
]
HUB = ["huggingface_hub>=1.0", "safetensors>=0.6"]
CTRANSLATE2 = ["ctranslate2>=4.6"]
# Parquet, and files packed by zstd.
CORPORA = ["pyarrow>=20", "backports.zstd>=1.0"]
RAY = ["ray[data]>=2.60"]  # whose checkpoints were tried
DOCUMENTS = ["sentencex>=1.0.32"]
SERVE = [
    *DOCUMENTS,
    "prometheus-client>=0.22",
    "py3langid>=0.4",
    "python-multipart>=0.0.20",
    "starlette>=0.46",
    "uvicorn>=0.35",
]
# What builds the site, and makes notebooks of the tutorials and runs them.
DOCS = [
    "ipykernel>=6.29",
    "jupytext>=1.17",
    "mkdocstrings-python>=2.0",
    "nbclient>=0.10",
    "zensical~=0.0.73",
]
# What Keras exports with, and what then runs the models.
EXPORT = [
    "ai-edge-litert>=2.1",
    "onnxruntime>=1.23",
    "openvino>=2025.4",
    "tf2onnx>=1.17",
]


def read(name: str) -> str:
    """Reads a name of version.py without importing the package, which needs Keras."""
    source = (ROOT / "keras_transformer" / "version.py").read_text("utf-8")
    return re.search(rf'^{name} = "(.+)"$', source, re.MULTILINE)[1]


def read_readme() -> str:
    """Reads README.md; on the package index, links to files need a whole address."""
    text = (ROOT / "README.md").read_text("utf-8")
    if not URL:
        return text

    def complete(link):
        raw = "?raw=true" if link[1] else ""  # the image, rather than a page about it
        return f"{link[1]}[{link[2]}]({URL}/{link[3]}{raw})"

    return re.sub(r"(!?)\[([^]]*)\]\((?!http)([^)]+)\)", complete, text)


setup(
    name=read("DISTRIBUTION"),
    version=read("__version__"),
    description="Build, train, understand and serve Transformers in Keras 3",
    long_description=read_readme(),
    long_description_content_type="text/markdown",
    project_urls={"Source": URL, "Changelog": f"{URL}/CHANGELOG.md"} if URL else {},
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    keywords="transformer attention translation keras tensorflow serving",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["keras_transformer", "keras_transformer.*"]),
    package_data={"keras_transformer": ["py.typed", "*/*.html", "runs/recipes/*"]},
    python_requires=">=3.10,<3.14",
    install_requires=[
        # Keras 3.12 is the last that runs on Python 3.10.
        'keras>=3.15; python_version >= "3.11"',
        'keras>=3.12.4,<3.13; python_version < "3.11"',
        "tensorflow>=2.21",
        "tensorflow-text>=2.21.1",
        "tensorboard>=2.20",  # TensorFlow no longer installs it.
        "sentencepiece>=0.2.3",
        "sacrebleu>=2.5",
        "sacremoses>=0.1.1",
        "matplotlib>=3.9.2",
        "babel>=2.16",
        "pydantic>=2.12",
        "ruamel.yaml>=0.18",
        "filelock>=3.18",
        "typer>=0.19",
        "rich>=15",
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.21"],
        "hub": HUB,
        "keras-hub": KERAS_HUB,
        "ctranslate2": CTRANSLATE2,
        "mecab": ["sacrebleu[ja,ko]>=2.5"],  # BLEU of Japanese and Korean
        "corpora": CORPORA,
        "ray": RAY,
        "serve": SERVE,
        "export": EXPORT,
        "docs": DOCS,
        "documents": DOCUMENTS,
        "dev": [
            *KERAS_HUB,
            *HUB,
            *CTRANSLATE2,
            *CORPORA,
            *RAY,
            *SERVE,
            *EXPORT,
            *DOCS,
            *DOCUMENTS,
            "build>=1.3",
            # What starlette tests with.
            'httpx2>=2.0; python_version >= "3.11"',
            'httpx>=0.28; python_version < "3.11"',
            "hypothesis>=6.170",
            "import-linter>=2.3",
            # Schemas of the manifests in docs/.
            "kubeflow-trainer-api>=2.3",
            "kubernetes-validate>=1.37",
            "libretranslatepy>=2.1",
            "mypy~=2.4.0",
            "pre-commit>=4",
            "pytest>=8.4",
            "pytest-xdist>=3.8",
            "ruff~=0.17.0",
            "scikit-learn>=1.5",  # for its handwritten digits
            "setuptools>=77",
            "tensorflow-serving-api>=2.21",  # the server's messages, for its tests
            "twine>=6",
        ],
    },
    entry_points={
        "console_scripts": ["keras-transformer = keras_transformer.cli:main"]
    },
)
