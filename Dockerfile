# Serves a run with CTranslate2, without TensorFlow.
#
# CTranslate2 reads an export, which `serve` writes into the run when it first serves it,
# with the options of the search that it is given:
#
#     keras-transformer serve runs/en-de --engine ctranslate2    # once; then Ctrl-C
#     docker build --build-arg RUN=runs/en-de --tag en-de .
#     docker run --publish 8501:8501 en-de
#
# Options, such as --api-key, follow `docker run ... en-de serve /run --engine ctranslate2
# --host 0.0.0.0`. Those of the search must be the ones that the run was exported with.
FROM python:3.12-slim

RUN pip install --no-cache-dir babel ctranslate2 prometheus-client py3langid pydantic \
    python-multipart rich ruamel.yaml sentencepiece sentencex starlette typer uvicorn
COPY setup.py pyproject.toml README.md LICENSE /package/
COPY keras_transformer /package/keras_transformer
# Without what only training and TensorFlow need.
RUN pip install --no-cache-dir --no-deps /package && rm -r /package

ARG RUN
COPY ${RUN} /run
USER nobody
EXPOSE 8501
HEALTHCHECK CMD python -c "import urllib.request as r; r.urlopen('http://localhost:8501/healthz')"
ENTRYPOINT ["keras-transformer"]
CMD ["serve", "/run", "--engine", "ctranslate2", "--host", "0.0.0.0"]
