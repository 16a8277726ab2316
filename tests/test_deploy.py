"""The files in deploy/ can be read, and name what exists."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from minisgl.cli.app import build_app
from minisgl.server.config import ServerConfig
from minisgl.server.exposition import FAMILIES
from minisgl.server.http import CUT_S
from minisgl.server.lifecycle import GRACE_S
from minisgl.server.remote_handle import SHUTDOWN_S

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
HISTOGRAM = ("_bucket", "_sum", "_count")


def served_names() -> set[str]:
    """Every name under which /metrics shows something."""
    endings = {"counter": ("_total",), "gauge": ("",), "histogram": HISTOGRAM}
    names = {f"minisgl_{family.name}{ending}" for family in FAMILIES for ending in endings[family.kind]}
    return names | {"process_cpu_seconds_total"}


def queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana/dashboards/minisgl.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_the_dashboard_asks_for_metrics_that_the_server_has():
    asked = {name for query in queries() for name in re.findall(r"\b(?:minisgl|process)_\w+", query)}
    assert len(asked) > 12
    assert asked <= served_names()


def test_the_dashboard_groups_by_labels_that_its_metrics_have():
    labels = {f"minisgl_{family.name}": family.label for family in FAMILIES}
    for query in queries():
        for label, name in re.findall(r"by \((\w+)\) \(?(?:rate\()?(minisgl_\w+)", query):
            expected = "le" if name.endswith("_bucket") else labels[name.removesuffix("_total")]
            assert label == expected, query


def read_yaml(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_what_compose_mounts_and_builds_from_exists():
    (compose,) = read_yaml("compose.yaml")
    build = compose["services"]["minisgl"]["build"]
    assert f"AS {build['target']}\n" in (DEPLOY / build["context"] / build["dockerfile"]).read_text()
    mounts = [volume for service in compose["services"].values() for volume in service.get("volumes", ())]
    for mount in mounts:
        source = mount.split(":")[0]
        assert source in compose["volumes"] or (DEPLOY / source).exists(), mount


def test_prometheus_scrapes_the_service_of_compose():
    (prometheus,), (compose,) = read_yaml("prometheus.yaml"), read_yaml("compose.yaml")
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.split(":")[0] in compose["services"]


def test_the_dashboard_and_grafana_mean_the_same_data_source():
    (provisioned,) = read_yaml("grafana/provisioning/datasources/prometheus.yaml")
    dashboard = json.loads((DEPLOY / "grafana/dashboards/minisgl.json").read_text())
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {provisioned["datasources"][0]["uid"]}
    (provider,) = read_yaml("grafana/provisioning/dashboards/minisgl.yaml")
    mounts = read_yaml("compose.yaml")[0]["services"]["grafana"]["volumes"]
    assert any(mount.split(":")[1] == provider["providers"][0]["options"]["path"] for mount in mounts)


def test_kubernetes_probes_health_on_the_port_that_the_image_serves():
    deployment, service = read_yaml("kubernetes.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    port = container["ports"][0]
    assert port["name"] == service["spec"]["ports"][0]["targetPort"]
    assert f'"--port", "{port["containerPort"]}"' in (DEPLOY / "Dockerfile").read_text()


def read_unit() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "minisgl.service")
    return unit["Service"]


def given_flags() -> dict[str, list[str]]:
    """The options that each file gives `minisgl serve`."""
    words = shlex.split(read_unit()["ExecStart"])
    deployment, _ = read_yaml("kubernetes.yaml")
    docker = re.findall(r'(?:ENTRYPOINT|CMD) \["(?:minisgl|--).*', (DEPLOY / "Dockerfile").read_text())
    return {
        "minisgl.service": words,
        "kubernetes.yaml": deployment["spec"]["template"]["spec"]["containers"][0]["args"],
        "compose.yaml": read_yaml("compose.yaml")[0]["services"]["minisgl"]["command"],
        "Dockerfile": re.findall(r'"(.*?)"', "".join(docker)),
    }


@pytest.mark.parametrize("file", ["minisgl.service", "kubernetes.yaml", "compose.yaml", "Dockerfile"])
def test_the_options_given_to_the_server_exist(file):
    serve = typer.main.get_command(build_app("serve")).commands["serve"]
    known = {name for parameter in serve.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word for word in given_flags()[file] if word.startswith("--")}
    assert given
    assert given <= known


def test_models_of_the_hub_go_where_the_file_system_can_be_written():
    """In compose and Kubernetes that is a volume at the image's folder, which neither of them calls otherwise."""
    compose, (deployment, _) = read_yaml("compose.yaml")[0]["services"]["minisgl"], read_yaml("kubernetes.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    images = re.findall(r"^ENV .*", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert len(images) == 2
    for line in images:
        assert {"MINISGL_CACHE_DIR=/cache", "HF_HOME=/cache/huggingface"} <= set(line.split())
    assert "models:/cache" in compose["volumes"]
    assert "/cache" in [mount["mountPath"] for mount in container["volumeMounts"]]
    given = {*compose["environment"], *(entry["name"] for entry in container["env"])}
    assert given.isdisjoint({"MINISGL_CACHE_DIR", "HF_HOME"})
    unit = read_unit()
    folder = f"/var/cache/{unit['CacheDirectory']}"
    assert unit["Environment"].split() == [f"MINISGL_CACHE_DIR={folder}", f"HF_HOME={folder}/huggingface"]


def test_nobody_kills_a_server_that_is_still_ending_in_good_order():
    """The worst case, in seconds: requests do not end, nor does the engine, nor whoever reads the error."""
    longest = ServerConfig().drain_timeout + SHUTDOWN_S + GRACE_S + CUT_S
    pod = read_yaml("kubernetes.yaml")[0]["spec"]["template"]["spec"]
    pause = float(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    compose = read_yaml("compose.yaml")[0]["services"]["minisgl"]
    waits = {
        "compose": float(compose["stop_grace_period"].removesuffix("s")),
        "systemd": float(read_unit()["TimeoutStopSec"]),
        "kubernetes": pod["terminationGracePeriodSeconds"] - pause,
    }
    assert min(waits.values()) >= longest + 5, waits
