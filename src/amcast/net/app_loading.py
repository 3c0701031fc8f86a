"""Finds the application and the placement policy that a configuration names.

    app = "bank:Bank"          # in a module that can be imported
    app = "apps/bank.py:Bank"  # in a file, relative to cluster.toml

An application is called with the name of the process's group, as `Bank("g1")`: replicas of a group are made alike. A
policy is called with the sites and their regions: see `protocols/geopaxos/policy.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core import UsageError
from ..protocols.geopaxos.placer import regions_of
from ..protocols.geopaxos.policy import make_policy, register_policy
from ..protocols.geopaxos.state import GeoConfig, sites_of
from .config import ClusterConfig, split_name
from .node.application import ExchangingMachine, Machine, StateMachine

_HINT = "name it as module:Factory, or as path/file.py:Factory"


def make_application(config: ClusterConfig, process: str) -> Machine | None:
    """None if the configuration names no application."""
    if not config.app:
        return None
    factory = find_factory(config.app, Path(config.folder))
    group = f"g{split_name(process)[0]}"
    try:
        made = factory(group)
    except Exception as error:
        raise UsageError(f"the application {config.app} can't be made: {_told(error)}") from error
    if not isinstance(made, StateMachine | ExchangingMachine):
        kind = type(made).__name__
        raise UsageError(f"the application {config.app} makes a {kind}, which is no amcast.StateMachine")
    return made


def load_policy(config: ClusterConfig) -> None:
    """Has the protocol know the placement policy that the configuration names, or says what is wrong with it."""
    made = config.replica_config()
    if not isinstance(made, GeoConfig) or not made.placement:
        return
    if ":" in made.placement:
        register_policy(made.placement, find_factory(made.placement, Path(config.folder), "placement policy"))
    topology = config.topology()
    regions = regions_of(sites_of(made, topology), topology)
    make_policy(made.placement, {f"g{site}": region for site, region in regions.items()})


def find_factory(app: str, folder: Path, what: str = "application") -> Callable[[Any], Any]:
    """A relative path begins in this folder."""
    where, _, name = app.rpartition(":")
    if not where or not name:
        raise UsageError(f"'{app}' names no {what}: {_HINT}")
    try:
        module = _load_file(folder / where) if where.endswith(".py") else importlib.import_module(where)
    except FileNotFoundError as error:
        raise UsageError(f"the {what} {app} can't be loaded: there is no file {error.filename}") from error
    except Exception as error:  # whatever the module does when it is imported
        raise UsageError(f"the {what} {app} can't be loaded: {_told(error)}") from error
    factory: Callable[[Any], Any] | None = getattr(module, name, None)
    if not callable(factory):
        raise UsageError(f"there is no {what} '{name}' in {where}: {_HINT}")
    return factory


def absolute_app(app: str) -> str:
    """The same application for processes that run elsewhere: what is in the working directory is named by its file."""
    where, _, name = app.rpartition(":")
    if not where:
        return app
    file = Path(where) if where.endswith(".py") else Path(*where.split(".")).with_suffix(".py")
    return f"{file.resolve()}:{name}" if file.is_file() else app


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    # A file may be called like a module that is there already, such as json.py: it takes nobody's place.
    name = path.stem if path.stem not in sys.modules else f"amcast_app_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(path.parent))  # its neighbours can be imported
    spec.loader.exec_module(module)
    return module


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
