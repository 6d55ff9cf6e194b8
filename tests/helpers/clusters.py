"""A Slurm and a Ray cluster on this machine, and hosts of their own names that share a folder."""

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from crashing_norm import wait_for

# Its accounting is needed, too: what submitit knows of a job that left no answer it asks `sacct`.
SLURM = ["setpriv", "slurmctld", "slurmd", "sbatch", "munged", "slurmdbd", "mariadbd", "mariadb-install-db"]
THIS = socket.gethostname().partition(".")[0]
SLURM_CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge,cred_expire=30
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%h
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%h.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[1]}
AccountingStoragePass={folder}/munge
{nodes}
PartitionName=cpu Nodes=ALL Default=YES MaxTime=60 State=UP
"""
SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={ports[1]}
SlurmUser={user}
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports[2]}
StorageUser=slurm
StoragePass={password}
"""
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
WITHOUT_TOKENS = {"RAY_AUTH_MODE": "disabled"}  # or Ray writes one into the home folder
HOST = """
hostname "$1" && echo "$2" > "$3/boot-$1" && mount --bind "$3/boot-$1" /proc/sys/kernel/random/boot_id || exit
{ cat /etc/hosts && echo 127.0.0.1 first second; } > "$3/hosts-$1" && mount --bind "$3/hosts-$1" /etc/hosts || exit
[ -z "$5" ] || bindfs -f -o attr_timeout=0,entry_timeout=0 "$4" "$5" &
read -r _
kill $! 2>/dev/null; wait
"""


def lacking(programs: Sequence[str]) -> str:
    """Which of these programs this machine does not have; empty if it has all."""
    missing = [name for name in programs if not shutil.which(name)]
    return f"no {', '.join(missing)}" if missing else ""


def free_ports(count: int) -> list[int]:
    """Ports of this machine on which nobody listens."""
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def slurm(**hosts: Sequence[str]) -> Iterator[dict[str, str]]:
    """A Slurm with accounting, whose nodes are these hosts, by name, or this machine alone, and which ends with the
    block: its environment."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:  # short: the names of sockets have 107 letters
        os.chmod(folder, 0o755)  # or munged refuses it
        with slurm_in(Path(folder), hosts or {THIS: []}) as environment:
            yield environment


@contextlib.contextmanager
def slurm_in(folder: Path, hosts: dict[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """That Slurm, with all of its files in a folder."""
    ports = free_ports(3 + len(hosts))
    named = zip(hosts, ports[3:], strict=True)
    values = {
        "folder": folder,
        "host": THIS,
        "user": getpass.getuser(),
        "ports": ports,
        "nodes": "\n".join(f"NodeName={name} NodeAddr=127.0.0.1 Port={port} CPUs=4" for name, port in named),
        "password": secrets.token_hex(16),
    }
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    for name, text in (("slurm.conf", SLURM_CONF), ("slurmdbd.conf", SLURMDBD_CONF)):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(text.format(**values))
    (folder / "key").touch(mode=0o600)
    (folder / "key").write_bytes(secrets.token_bytes(1024))
    for name in ("state", "database"):
        (folder / name).mkdir()
    database = ["--no-defaults", f"--user={values['user']}", f"--datadir={folder}/database", "--skip-name-resolve"]
    database += ["--innodb-log-file-size=8M"]
    made = ["mariadb-install-db", *database, "--auth-root-authentication-method=socket", "--skip-test-db", "--force"]
    subprocess.run(made, check=True, capture_output=True)
    account = "slurm@'127.0.0.1'"
    allowed = f"CREATE USER {account} IDENTIFIED BY '{values['password']}';\nGRANT ALL ON *.* TO {account};\n"
    (folder / "accounts.sql").write_text(allowed)
    database += [f"--socket={folder}/database.socket", f"--port={values['ports'][2]}", "--bind-address=127.0.0.1"]
    munge = [f"--{name}={folder}/{name}" for name in ("log-file", "pid-file", "seed-file")]

    def answers(*command: str) -> Callable[[], bool]:
        return lambda: subprocess.run(command, env=environment, capture_output=True).returncode == 0

    def are_idle(count: int) -> bool:
        shown = subprocess.run(["sinfo", "-h", "-o", "%D %T"], env=environment, capture_output=True, text=True)
        return f"{count} idle" in shown.stdout.splitlines()

    programs: list[tuple[list[str], Callable[[], bool]]] = [
        (["munged", "-F", f"--socket={folder}/munge", f"--key-file={folder}/key", *munge], (folder / "munge").exists),
        (["mariadbd", *database, f"--init-file={folder}/accounts.sql"], (folder / "database.socket").exists),
        (["slurmdbd", "-D"], answers("sacctmgr", "-n", "show", "cluster")),
        (["slurmctld", "-D"], answers("scontrol", "ping")),
        *(([*within, "slurmd", "-D"], partial(are_idle, i)) for i, within in enumerate(hosts.values(), 1)),
    ]
    with contextlib.ExitStack() as running:
        for i, (command, ready) in enumerate(programs):
            log = folder / f"{i}.log"
            wait_for_daemon(running.enter_context(daemon(command, log, environment)), ready, log)
        yield environment


@contextlib.contextmanager
def daemon(command: Sequence[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs, in a session of its own, until the block or this process ends."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "--", *command],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_daemon(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    """Wait until a program is ready; fails with its log if it has ended before."""
    wait_for(lambda: process.poll() is not None or ready())
    assert process.poll() is None, log.read_text()


@contextlib.contextmanager
def host(name: str, folder: Path, disk: Path | str = "", shared: Path | str = "") -> Iterator[list[str]]:
    """Words before a command that run it on a host of this name, with a boot id of its own.  It sees the folder `disk`
    as `shared`, over a file system that, as many of a network, shares no locks with other hosts."""
    command = ["unshare", "--uts", "--mount", "sh", "-c", HOST, "sh", name, f"boot of {name}", folder, disk, shared]
    with daemon([str(word) for word in command], folder / f"{name}.log", {**os.environ}) as process:
        within = ["nsenter", "-t", str(process.pid), "--uts", "--mount", "--"]
        script = f'[ "$(hostname)" = {name} ] && {{ [ -z "{shared}" ] || mountpoint -q "{shared}"; }}'
        try:
            wait_for(lambda: subprocess.run([*within, "sh", "-c", script], capture_output=True).returncode == 0, 20)
            yield within
        finally:
            process.communicate(b"\n", 20)


def no_hosts(*programs: str) -> str:
    """Why hosts of their own names cannot be made here; empty if they can."""
    names = ("setpriv", "unshare", "nsenter", "hostname", *programs)
    if why := lacking(names):
        return why
    if "bindfs" in programs and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse"
    made = subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True, text=True)
    return f"no namespaces ({made.stderr.strip()})" if made.returncode else ""


@contextlib.contextmanager
def ray(folder: Path, nodes: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Ray cluster with a core on each of these hosts, which ends with the block: its address."""
    environment, address = os.environ | WITHOUT_TOKENS, f"127.0.0.1:{free_ports(1)[0]}"
    start = [*RAY, "start", "--block", "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]
    with tempfile.TemporaryDirectory(prefix="ray-") as files, contextlib.ExitStack() as running:  # short, as Slurm's
        head = ["--head", f"--port={address.partition(':')[2]}", "--include-dashboard=false", f"--temp-dir={files}"]
        for count, within in enumerate(nodes, 1):
            joined = [f"--node-ip-address=127.0.0.{count}", *(head if count == 1 else [f"--address={address}"])]
            log = folder / f"ray-{count}.log"
            started = running.enter_context(daemon([*within, *start, *joined], log, environment))
            wait_for_daemon(started, partial(has_nodes, count, address, environment), log)
        yield address


def has_nodes(count: int, address: str, environment: dict[str, str]) -> bool:
    """Whether so many nodes of a Ray cluster have started."""
    shown = subprocess.run([*RAY, "status", "--address", address], env=environment, capture_output=True, text=True)
    return shown.stdout.partition("Pending:")[0].count(" node_") == count
