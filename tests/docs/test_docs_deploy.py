"""The files in examples/deploy are what docs/operations.md says: they agree with each other and with the program."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main
import yaml

from amcast import __version__
from amcast.cli._app import make_app
from amcast.net.config import ClusterConfig, load_config, split_address
from amcast.net.disk.records import Durability
from amcast.net.local import temporary_cluster
from tests.docs.docs_pages import ROOT

DEPLOY = ROOT / "examples" / "deploy"
METRIC = re.compile(r"\bamcast_[a-z_]+\b")


def assert_command(words: list[str]) -> None:
    """Words after `amcast` name a command that there is, with options that it has."""
    found: Any = typer.main.get_command(make_app())
    rest = list(words)
    while rest and rest[0] in getattr(found, "commands", {}):
        found = found.commands[rest.pop(0)]
    assert not hasattr(found, "commands"), f"there is no `amcast {' '.join(words)}`"
    known = {option for parameter in found.params for option in parameter.opts}
    given = {word for word in rest if word.startswith("-") and word != "-"}
    assert given <= known, f"amcast {' '.join(words)}: it has {sorted(known)}"


def commands_in(text: str) -> Iterator[list[str]]:
    for line in re.findall(
        r"(?:^|[ /])amcast(?::[\d.]+)? ((?:node|init|replace|certs|token|config|status) [^\n]*)", text
    ):
        yield [word.strip('";') for word in shlex.split(line.split(" 2>")[0].replace('"', ""), comments=True)]


# -- the cluster of the example


@pytest.fixture(scope="module")
def cluster() -> ClusterConfig:
    return load_config(DEPLOY / "cluster.toml")


def test_the_configuration_can_lose_any_machine(cluster: ClusterConfig) -> None:
    machines = {split_address(each.address)[0] for each in cluster.process}
    for lost in machines:
        for group in cluster.topology().groups:
            members = [each for each in cluster.process if each.id.startswith(f"g{group}.")]
            up = [each for each in members if split_address(each.address)[0] != lost]
            assert 2 * len(up) > len(members)


def test_prometheus_scrapes_every_process(cluster: ClusterConfig) -> None:
    document = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (job,) = document["scrape_configs"]
    found = {entry["labels"]["process"]: entry for entry in job["static_configs"]}
    assert document["rule_files"] == ["alerts.yml"]
    assert job["job_name"] == "amcast"
    assert job["tls_config"]["server_name"] == "localhost"
    assert found.keys() == {each.id for each in cluster.process}
    for each in cluster.process:
        assert found[each.id]["targets"] == [f"{split_address(each.address)[0]}:{each.metrics}"]
        assert found[each.id]["labels"]["group"] == each.id.split(".")[0]


# -- figures


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """What a node with TLS really serves."""
    with temporary_cluster("skeen", 1, 1, durability=Durability.MEMORY, metrics=True, tls=True) as made:
        port = made.config.process[0].metrics
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            return set(re.findall(r"^# TYPE (\w+)", page.read().decode(), re.MULTILINE))


@pytest.mark.parametrize("name", ["alerts.yml", "grafana-dashboard.json", "../../docs/operations.md"])
def test_figures_that_are_named_are_exported(name: str, exported: set[str]) -> None:
    named = set(METRIC.findall((DEPLOY / name).read_text()))
    assert len(named) > 4
    assert named <= exported


def test_the_guide_and_the_dashboard_show_all_figures(exported: set[str]) -> None:
    for path in (ROOT / "docs" / "operations.md", DEPLOY / "grafana-dashboard.json"):
        assert exported == set(METRIC.findall(path.read_text())), path.name


def test_the_dashboard_has_a_place_for_each_panel() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["description"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0


def test_alerts_have_what_prometheus_asks_for() -> None:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) > 4
    for rule in group["rules"]:
        assert rule["expr"]
        assert rule["annotations"]["summary"]
        assert rule["expr"].count("(") == rule["expr"].count(")")


# -- systemd, containers, Kubernetes


def test_the_unit_runs_a_node() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "amcast@.service")
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "amcast"
    assert words[words.index("--id") + 1] == "%i"
    assert_command(words)
    config = load_config(DEPLOY / "cluster.toml")
    assert config.data == f"/var/lib/{unit['Service']['StateDirectory']}"
    assert unit["Service"]["Restart"] == "always"


def test_the_image_is_made_of_files_that_are_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line.split() for line in text.splitlines() if line.startswith("COPY ")]
    assert lines
    for _, *sources, _ in lines:
        for source in sources:
            assert (ROOT / source).exists(), source
    assert f"amcast:{__version__}" in text
    assert json.loads(text.split("ENTRYPOINT ")[1].splitlines()[0]) == ["amcast"]


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def test_pods_are_the_processes_of_the_configuration(objects: list[dict[str, Any]]) -> None:
    (settings,), (service,) = of_kind(objects, "ConfigMap"), of_kind(objects, "Service")
    config = msgspec.convert(tomllib.loads(settings["data"]["cluster.toml"]), ClusterConfig)
    config.check()
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    expected = {}
    for each in of_kind(objects, "StatefulSet"):
        group, spec = each["metadata"]["name"], each["spec"]
        assert spec["serviceName"] == service["metadata"]["name"]
        assert spec["podManagementPolicy"] == "Parallel"
        for pod in range(spec["replicas"]):
            expected[f"{group}.p{pod}"] = f"{group}-{pod}.{spec['serviceName']}:{ports['amcast']}"
        (node,) = spec["template"]["spec"]["containers"]
        assert {port["name"]: port["containerPort"] for port in node["ports"]} == ports
        assert node["image"] == f"amcast:{__version__}"
    assert {each.id: each.address for each in config.process} == expected
    assert {each.metrics for each in config.process} == {ports["metrics"]}


def test_pods_mount_what_the_configuration_names(objects: list[dict[str, Any]]) -> None:
    (settings,) = of_kind(objects, "ConfigMap")
    config = msgspec.convert(tomllib.loads(settings["data"]["cluster.toml"]), ClusterConfig)
    assert config.tls is not None
    assert config.tokens is not None
    for each in of_kind(objects, "StatefulSet"):
        pod = each["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]} | {
            claim["metadata"]["name"] for claim in each["spec"]["volumeClaimTemplates"]
        }
        for container in (*pod["initContainers"], *pod["containers"]):
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert set(mounts.values()) <= volumes
            assert mounts.keys() >= {config.data, config.tls.folder, str(Path(config.tokens).parent), "/etc/amcast"}


@pytest.mark.parametrize("name", ["kubernetes.yaml", "Dockerfile", "../../docs/operations.md", "prometheus.yml"])
def test_commands_that_are_named_exist(name: str) -> None:
    found = list(commands_in((DEPLOY / name).read_text()))
    assert found
    for words in found:
        assert_command(words)


def test_a_wrong_option_is_found() -> None:
    (words,) = commands_in("exec amcast node --conf /etc/amcast/cluster.toml --id x\n")
    with pytest.raises(AssertionError, match="--config"):
        assert_command(words)
