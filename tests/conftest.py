"""Shared test set-up: eight virtual CPU devices, slow tests on request, paths to shared data."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# A shell's background jobs start with Ctrl-C ignored, and hand that on to the processes that tests
# of Ctrl-C start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run: a failure is the change's, not the day's. To look for new ones:
# pytest --hypothesis-profile=search
settings.register_profile("steady", derandomize=True)
settings.register_profile("search", max_examples=1000)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")
    parser.addoption("--data", default=None, help="folder with the published workloads")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow; run with --slow"))


@pytest.fixture(scope="session")
def data_folder(request: pytest.FixtureRequest) -> Path:
    """The folder given by --data; tests that need it skip without it."""
    folder = request.config.getoption("--data")
    if folder is None:
        pytest.skip("needs the published workloads: pytest --data FOLDER")
    return Path(folder)
