"""What the page on running servers shows is what the servers' messages accept."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import typer
from google.protobuf import text_format
from ruamel.yaml import YAML
from serving.server_messages import server_message

from keras_transformer.cli import app
from keras_transformer.serving.server_files import batching_parameters

DOCS = Path(__file__).parents[2] / "docs"
KSERVE = os.environ.get("KERAS_TRANSFORMER_KSERVE")
# Checks each field against the classes of KServe and of Kubernetes, in their Python.
CHECK = """
import json, re, sys
import kubernetes.client
import kserve

def check(kind, value, where):
    inner = re.fullmatch(r"list\\[(.*)\\]", kind)
    if inner:
        for item in value:
            check(inner[1], item, where)
        return
    model = getattr(kserve, kind, None) or getattr(kubernetes.client, kind, None)
    if model is None:
        return
    kinds = {name: model.openapi_types[x] for x, name in model.attribute_map.items()}
    assert value.keys() <= kinds.keys(), (where, value.keys() - kinds.keys())
    for name, field in value.items():
        check(kinds[name], field, f"{where}.{name}")

check("V1beta1InferenceService", json.load(sys.stdin), "")
"""


def blocks(page, language):
    text = (DOCS / page).read_text("utf-8")
    pattern = rf"^( *)```{language}\n(.*?)^\1```$"
    return [x[2] for x in re.finditer(pattern, text, re.DOTALL | re.MULTILINE)]


def manifests(page):
    """Returns the manifests of a page by kind."""
    loaded = [y for x in blocks(page, "yaml") for y in YAML(typ="safe").load_all(x)]
    return {manifest["kind"]: manifest for manifest in loaded}


def message_of(text):
    """Returns the message that text is to be parsed as, by its first field."""
    first = text.split(maxsplit=1)[0]
    if first == "prometheus_config":
        return server_message("MonitoringConfig")
    if first == "model_config_list":
        module = "tensorflow_serving.config.model_server_config_pb2"
        return pytest.importorskip(module).ModelServerConfig()
    return server_message("BatchingParameters")


def test_settings_of_the_server_are_its_messages():
    mapped = manifests("serving_operations.md")["ConfigMap"]["data"]
    texts = [*blocks("serving_operations.md", "proto"), *mapped.values()]
    models, loading, moved, batching, monitoring, one_model, same = (
        text_format.Parse(text, message_of(text)) for text in texts
    )
    check_roll(loading, moved)
    (config,) = models.model_config_list.config
    versions = config.model_version_policy.specific.versions
    assert config.model_platform == "tensorflow"
    assert {*config.version_labels.values()} <= {*versions}
    assert one_model.model_config_list.config[0].base_path == config.base_path
    assert monitoring == same
    assert monitoring.prometheus_config.enable
    written = text_format.Parse(batching_parameters(), message_of("max_batch_size"))
    written.num_batch_threads.value = batching.num_batch_threads.value
    assert batching == written


def check_roll(loading, moved):
    """Checks that a label moves by itself, to a version that is loaded before."""
    (before,), (after,) = (x.model_config_list.config for x in (loading, moved))
    loaded = before.model_version_policy.specific.versions
    assert before.version_labels["stable"] == min(loaded)
    assert after.version_labels["stable"] == max(loaded)
    after.version_labels["stable"] = before.version_labels["stable"]
    assert loading == moved


@pytest.mark.parametrize("page", ["serving_operations.md", "clusters.md", "service.md"])
def test_manifests_are_of_kubernetes(page):
    validate = pytest.importorskip("kubernetes_validate").validate
    found = manifests(page).values()
    found = [x for x in found if "." not in x["apiVersion"].partition("/")[0]]
    assert len(found) >= 2
    for manifest in found:
        validate(manifest, "1.35", strict=True)


def test_a_training_is_of_kubeflow():
    found = manifests("clusters.md")
    kubeflow = pytest.importorskip("kubeflow_trainer_api.models")
    for kind in ("TrainingRuntime", "TrainJob"):
        model = getattr(kubeflow, f"TrainerV1alpha1{kind}")
        # What the model does not know is lost on the way.
        assert model.from_dict(found[kind]).to_dict() == found[kind]
    job = found["TrainJob"]["spec"]
    assert job["runtimeRef"]["name"] == found["TrainingRuntime"]["metadata"]["name"]
    assert job["trainer"]["args"][0].count(":2222") == job["trainer"]["numNodes"]


def test_a_deployment_agrees_with_its_settings():
    found = manifests("serving_operations.md")
    template = found["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    mounted = {x["name"]: x["mountPath"] for x in container["volumeMounts"]}
    flags = dict(x[2:].partition("=")[::2] for x in container["args"])
    for flag in ("model_config_file", "monitoring_config_file"):
        folder, name = os.path.split(flags[flag])
        assert folder == mounted["config"]
        assert name in found["ConfigMap"]["data"]
    assert flags["batching_parameters_file"].startswith(mounted["models"])
    assert template["metadata"]["labels"] == found["Service"]["spec"]["selector"]
    assert "enable_grpc_healthcheck_service" in flags
    ports = {x["name"]: x["containerPort"] for x in container["ports"]}
    assert container["readinessProbe"]["grpc"]["port"] == ports["grpc"]


def test_a_container_of_the_server_has_time_to_end():
    pod = manifests("serving_operations.md")["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    flags = dict(x[2:].partition("=")[::2] for x in container["args"])
    options = dict(x.split("=") for x in flags["grpc_channel_arguments"].split(","))
    age, grace = (
        int(options[f"grpc.max_connection_{name}_ms"]) / 1000
        for name in ("age", "age_grace")
    )
    waits = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 1.1 * age + grace < waits < pod["terminationGracePeriodSeconds"]


def test_a_deployment_of_the_service_agrees_with_the_service():
    found = manifests("service.md")
    template = found["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    command = typer.main.get_command(app).commands["serve"]
    (_, *args) = container["args"]
    options = command.make_context("serve", args).params
    ends_after = options["drain_seconds"] + options["max_seconds"] + 5
    assert options["drain_seconds"] > 0
    assert ends_after < template["spec"]["terminationGracePeriodSeconds"]
    (port,) = container["ports"]
    assert port["containerPort"] == options["port"]
    paths = {"startupProbe": "/readyz", "readinessProbe": "/readyz"}
    for name, path in {**paths, "livenessProbe": "/healthz"}.items():
        assert container[name]["httpGet"] == {"path": path, "port": port["name"]}
    assert template["metadata"]["labels"] == found["Service"]["spec"]["selector"]


@pytest.mark.slow
@pytest.mark.skipif(KSERVE is None, reason="KERAS_TRANSFORMER_KSERVE names no Python.")
def test_the_service_of_kserve_has_fields_of_kserve():
    manifest = json.dumps(manifests("serving_operations.md")["InferenceService"])
    done = subprocess.run(
        [KSERVE, "-c", CHECK], input=manifest, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
