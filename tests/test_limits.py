"""The bound on RAM: what the machine, the control groups and the address space leave."""

from __future__ import annotations

import subprocess
import sys

import pytest

from attnknn import _limits
from attnknn._limits import available_bytes, check_fits
from attnknn.errors import AttnKNNError, TooLargeError

IN_CHILD = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from attnknn._limits import available_bytes
print(available_bytes())
"""


def pretend(monkeypatch, files: dict[str, str]) -> None:
    monkeypatch.setattr(_limits, "_lines", lambda path: files.get(str(path), "").splitlines())
    monkeypatch.setattr(_limits, "_address_space", lambda: iter(()))


def test_an_explicit_limit_counts_alone():
    assert available_bytes(limit=1000) == 1000


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_the_limit_of_the_address_space_counts():
    done = subprocess.run([sys.executable, "-c", IN_CHILD], capture_output=True, text=True)
    assert 0 < int(done.stdout) < 2 << 30


def test_the_limit_of_a_group_counts_less_what_is_used_and_cannot_be_given_back(monkeypatch):
    group = "/sys/fs/cgroup/pod/main"
    files = {"/proc/meminfo": "MemAvailable: 8000 kB", "/proc/self/cgroup": "0::/pod/main"}
    files |= {f"{group}/memory.max": "5000000", f"{group}/memory.current": "3000000"}
    files |= {f"{group}/memory.stat": "anon 2500000\ninactive_file 500000"}
    pretend(monkeypatch, files)
    assert available_bytes() == 2_500_000


def test_the_limit_of_a_parent_group_counts(monkeypatch):
    pod = "/sys/fs/cgroup/memory/pod"
    files = {"/proc/meminfo": "MemAvailable: 8000 kB", "/proc/self/cgroup": "4:memory:/pod/main"}
    files |= {f"{pod}/main/memory.limit_in_bytes": "9223372036854771712"}
    files |= {f"{pod}/main/memory.usage_in_bytes": "7"}
    files |= {f"{pod}/memory.limit_in_bytes": "90", f"{pod}/memory.usage_in_bytes": "40"}
    pretend(monkeypatch, files)
    assert available_bytes() == 50


def test_a_group_without_a_limit_leaves_what_the_machine_has(monkeypatch):
    files = {"/proc/meminfo": "MemAvailable: 8000 kB", "/proc/self/cgroup": "0::/"}
    files |= {"/sys/fs/cgroup/memory.max": "max", "/sys/fs/cgroup/memory.current": "3"}
    pretend(monkeypatch, files)
    assert available_bytes() == 8000 * 1024


def test_what_fits_passes_and_what_does_not_is_named_with_a_remedy():
    check_fits("The table", 1000, "Read fewer rows.", limit=1000)
    wanted = r"would need 2\.0 MB of memory, but only 1\.0 MB are available\. Read fewer rows\."
    with pytest.raises(TooLargeError, match=wanted) as raised:
        check_fits("The table", 2_000_000, "Read fewer rows.", limit=1_000_000)
    assert isinstance(raised.value, AttnKNNError)
    assert isinstance(raised.value, MemoryError)
