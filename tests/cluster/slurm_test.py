#!/usr/bin/env python3
"""Runs the recipe of docs/cluster.md on a Slurm cluster of four nodes, which it starts on this machine.

Usage: slurm_test.py CORANK

Takes the commands from the section Slurm of docs/cluster.md, with fewer partitions. One task of the array is killed
and requeued, one is preempted by a requeue, which ends it by SIGTERM, and one loses its node. The result must be that
of one merge. All daemons listen on the loopback address alone, keep their files in one temporary folder, and are
stopped at the end. Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge; exits with 77 without
them.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from stopping_program import wait_until, wait_until_stopped, write_stopping_program

HOST = "localhost"
NODES = 4
PARTITIONS = 8
RECORD = ["-r", "key:u64,value:u64"]
DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/cluster.md"
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=1,bf_interval=1
KillWait=5
ReturnToService=2
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/%n.spool
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{node_ports}] CPUs=1 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
PREEMPTED, KILLED, LOST = 1, 3, 6  # numbers of these tasks


def enter_namespace():
    """Starts this program again where the machine is named localhost, unless it is already. The controller listens on the
    address of that name, and another name may have any."""
    if socket.gethostname() == HOST:
        return
    unshare = ["unshare", "--uts"]
    if subprocess.run([*unshare, "hostname", HOST], check=False).returncode != 0:
        print("skipped: needs the right to make a namespace with a name of its own")
        sys.exit(77)
    os.execvp(unshare[0], [*unshare, "sh", "-c", f'hostname {HOST} && exec "$@"', "sh", sys.executable, *sys.argv])


def free_ports(count):
    """Returns consecutive ports of the loopback address that are free now."""
    for first in range(20000 + os.getpid() % 5000, 60000, count):
        with contextlib.ExitStack() as sockets, contextlib.suppress(OSError):
            for port in range(first, first + count):
                sockets.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise OSError("no free ports")


def is_listening_beyond_loopback(port):
    """Returns whether a socket listens on that port of an address that is not the loopback address."""
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
        with contextlib.suppress(FileNotFoundError):
            for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
                address, state = line.split()[1], line.split()[3]
                if state == "0A" and address.endswith(f":{port:04X}") and not address.startswith(loopback):
                    return True
    return False


class Cluster:
    """Daemons of a Slurm cluster on this machine, which run while the object is entered."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, {}  # processes by name
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.port = free_ports(NODES + 1)

    def __enter__(self):
        try:
            self.start_all()
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(self, *_):
        self.stop_all()

    def start(self, name, *command):
        with open(self.folder / f"{name}.out", "wb") as output:
            self.daemons[name] = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=output,
                                                  stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)

    def start_all(self):
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=HOST, folder=self.folder, controller_port=self.port, nodes=NODES,
            node_ports=f"{self.port + 1}-{self.port + NODES}"))
        self.start("munged", "munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket",
                   f"--key-file={key}", f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munged.seed",
                   f"--log-file={self.folder}/munged.log", "--origin=127.0.0.1")
        wait_until((self.folder / "munge.socket").exists, "munged")
        self.start("slurmctld", "slurmctld", "-D")
        for i in range(1, NODES + 1):
            self.start_node(f"n{i}")
        wait_until(self.has_all_nodes, "the nodes")
        for port in range(self.port, self.port + NODES + 1):
            if is_listening_beyond_loopback(port):
                raise OSError(f"port {port} is open to other machines")

    def start_node(self, name):
        self.start(name, "slurmd", "-D", "-N", name)

    def has_all_nodes(self):
        for name, daemon in self.daemons.items():
            if daemon.poll() is not None:
                said = (self.folder / f"{name}.out").read_text().strip()
                raise ChildProcessError(f"{name} ended with {daemon.returncode}:\n{said}")
        with contextlib.suppress(subprocess.CalledProcessError):  # the controller does not answer yet
            return self.call("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * NODES

    def stop_all(self):
        """Stops the daemons and all that they have started."""
        daemons = list(reversed(self.daemons.values()))
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
        for pid in self.processes():
            kill(pid)
        for daemon in daemons:
            daemon.wait()

    def processes(self, *variables):
        """Returns the processes of this cluster, daemons and jobs, that have these environment variables, too."""
        wanted = {variable.encode() for variable in (f"SLURM_CONF={self.environment['SLURM_CONF']}", *variables)}
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted <= set((process / "environ").read_bytes().split(b"\0")):
                    found.append(int(process.name))
        return found

    def lose_node(self, job, task):
        """Ends the node of a task and all its processes, as a power failure does, and starts it again."""
        node = self.field(f"{job}_{task}", "NodeList")
        processes = self.processes(f"SLURM_ARRAY_TASK_ID={task}")
        self.daemons[node].kill()
        self.daemons[node].wait()
        for pid in [*map(parent_of, processes), *processes]:
            kill(pid)
        self.call("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
        self.start_node(node)
        with contextlib.suppress(subprocess.CalledProcessError):  # the node has returned by itself
            self.call("scontrol", "update", f"nodename={node}", "state=resume")

    def call(self, *command, **settings):
        """Returns what the command prints."""
        return subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, text=True, check=True,
                              **settings).stdout.strip()

    def field(self, job, name):
        """Returns a field that Slurm shows of a job."""
        return re.search(rf"\b{name}=(\S*)", self.call("scontrol", "show", "job", "--oneliner", job))[1]

    def wait_for(self, job, *states):
        wait_until(lambda: self.field(job, "JobState") in states, f"job {job} to be {' or '.join(states)}")


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def parent_of(pid):
    """Returns the parent process; the process itself if it has ended."""
    with contextlib.suppress(OSError):
        return int(re.search(r"^PPid:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
    return pid


def read_recipe():
    """Returns the task script and the commands of the section Slurm, for fewer partitions and small nodes."""
    section = DOCUMENT.read_text().partition("\n## Slurm\n")[2].partition("\n## ")[0]
    for old, new in (("0-63", f"0-{PARTITIONS - 1}"), ("--partitions 64", f"--partitions {PARTITIONS}"),
                     ("--cpus-per-task=8", "--cpus-per-task=1"), ("--mem=16G", "--mem=200M")):
        if old not in section:
            sys.exit(f"{DOCUMENT}: the section Slurm lacks {old}")
        section = section.replace(old, new)
    code = "".join(line[4:] + "\n" for line in section.splitlines() if line.startswith("    "))
    script, _, commands = code.partition("plan=")
    return script, "plan=" + commands


class Recipe:
    """Files and jobs of the recipe."""

    def __init__(self, cluster, work, program):
        script, self.commands = read_recipe()
        self.cluster, self.work, self.program = cluster, work, program
        work.mkdir()
        (work / "part.sh").write_text(script)
        (work / "bin").mkdir()
        write_stopping_program(work / "bin/corank", program, work, (PREEMPTED, KILLED, LOST),
                               "-T 1 -m 4M --backend cpu")
        cluster.environment["PATH"] = f"{work}/bin:{os.environ['PATH']}"
        self.run("gen", *RECORD, "--records", "8000000", "--runs", "16", "-o", "runs")
        self.run("merge", *RECORD, "-o", "whole", *sorted((work / "runs").iterdir()))

    def run(self, *words):
        subprocess.run([self.program, *words], check=True, cwd=self.work)

    def submit(self):
        """Returns the numbers of the array and of the last job."""
        printed = self.cluster.call("bash", "-euc", f"{self.commands}\necho $parts", cwd=self.work)
        finish, parts = re.fullmatch(r"Submitted batch job (\d+)\n(\d+)", printed).groups()
        return parts, finish

    def disturb(self, parts):
        for task in (KILLED, PREEMPTED, LOST):
            wait_until_stopped(self.work, task)
        self.cluster.call("scancel", "--batch", "--signal=KILL", f"{parts}_{KILLED}")
        self.cluster.wait_for(f"{parts}_{KILLED}", "FAILED", "COMPLETED")
        self.cluster.call("scontrol", "requeue", f"{parts}_{KILLED}")
        self.cluster.call("scontrol", "requeue", f"{parts}_{PREEMPTED}")
        self.cluster.lose_node(parts, LOST)

    def check(self):
        """Compares the parts with one merge. Returns how many bytes the disturbed tasks resumed."""
        self.run("finish", "plan.json", "--read-runs", "--concatenate", "all")
        if (self.work / "all").read_bytes() != (self.work / "whole").read_bytes():
            sys.exit("the parts are not the bytes of one merge")
        return {task: json.loads((self.work / f"stats-{task}").read_text())["resumed_bytes"]
                for task in (PREEMPTED, KILLED, LOST)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program", type=lambda name: pathlib.Path(name).resolve())
    program = parser.parse_args().program
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        print(f"skipped: needs {', '.join(missing) or 'root'}")
        sys.exit(77)
    enter_namespace()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves all blocks, which stops the daemons
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "cluster").mkdir()
        with Cluster(folder / "cluster") as cluster:
            recipe = Recipe(cluster, folder / "work", program)
            parts, finish = recipe.submit()
            recipe.disturb(parts)
            cluster.wait_for(finish, "COMPLETED", "FAILED")
            if cluster.field(finish, "JobState") == "FAILED":
                sys.exit((folder / f"work/slurm-{finish}.out").read_text())
            resumed = recipe.check()
    print(f"{NODES} nodes, {PARTITIONS} tasks, one killed, one preempted, one without its node: byte-identical to one "
          f"merge; resumed bytes by task: {resumed}")


if __name__ == "__main__":
    main()
