# SPDX-License-Identifier: Apache-2.0
"""Packages, what is built and of which tree, MPI, Slurm and MUNGE."""
import os
import re

from .machine import HOST_NAME_MOST

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MPIRUN_HOST_NAME_MOST = 56  # of Open MPI 4.1: it writes "[NAME:PID]" where there is no room for more
PROGRAMS = ("baton-launch", "baton-router", "baton-prefill-worker", "baton-decode-worker")
MUNGE_SOCKET = "/run/munge/munge.socket.2"


def listed(path):
    """(a package's names, how the presence of each is seen) of setup/packages.txt"""
    try:
        with open(path, encoding="ascii") as f:
            rows = [(line.split() + [""])[:2] for line in f if line.split() and not line.startswith("#")]
            return [(names.split("|"), checks.split("|")) for names, checks in rows]
    except OSError:
        return []  # an installed Baton has none


def is_there(machine, check):
    kind, _, name = check.partition(":")
    if kind == "cmd":
        return machine.has(name) is not None
    if kind == "pc":
        return machine.command("pkg-config", "--exists", name) is not None
    return True  # a header: the build says it


def name_here(machine, names):
    """Of a package's names the one that apt has, else the last: names_here of setup/common.sh."""
    for name in names[:-1]:
        if re.search(r"^  \S+: \d", machine.command("apt-cache", "policy", name) or "", re.M):
            return name
    return names[-1]


def packages(machine, findings):
    """As setup/common.sh: by dpkg where there is one."""
    rows = listed(os.path.join(ROOT, "setup/packages.txt"))
    if not rows:
        return
    if machine.has("dpkg-query"):
        # It fails where it does not know one, and tells of the others.
        _, said, _ = machine.run("dpkg-query", "-W", "-f=${Package} ${Status}\n", *(name for names, _ in rows for name in names))
        have = {line.split()[0] for line in said.splitlines() if line.endswith(" install ok installed")}
        missing = [names for names, _ in rows if not have.intersection(names)]
    else:
        missing = [names for names, checks in rows if not any(is_there(machine, check) for check in checks)]
    missing = [name_here(machine, names) for names in missing]
    if missing:
        (findings.warning if machine.build else findings.problem)(
            "packages", f"not installed: {', '.join(missing)}" + ("; what is built may do without" if machine.build else ""),
            f"apt-get install -y --no-install-recommends {' '.join(missing)}")
    else:
        findings.ok("packages", f"all {len(rows)} of setup/packages.txt")


class Build:
    """The programs that ./baton would run."""

    def __init__(self, launch, libexec):
        """@param libexec  of an installed Baton, or "" """
        self.launch = launch
        folder = os.path.dirname(launch)
        self.paths = {}
        for name in PROGRAMS:
            in_tree = os.path.join(os.path.dirname(folder), "router" if name == "baton-router" else "worker/main", name)
            places = [launch] if name == "baton-launch" else [os.path.join(libexec or folder, name), in_tree]
            self.paths[name] = next((place for place in places if os.access(place, os.X_OK)), None)

    @property
    def missing(self):
        return [name for name, path in self.paths.items() if path is None]


def version_of(machine, path):
    """@return (text, None), or (None, why it does not run)"""
    status, out, error = machine.run(path, "--version")
    text = (out.strip() or error.strip()).splitlines()
    return (text[0], None) if status == 0 and text else (None, text[-1] if text else f"status {status}")


def build(machine, findings):
    if machine.build is None:
        findings.note("build", "nothing is built yet", "./baton serve")
        return
    if machine.build.missing:
        findings.problem("build", f"not there: {', '.join(machine.build.missing)}", "./baton serve, which builds what is missing")
    versions = set()
    for name, path in machine.build.paths.items():
        if path is None:
            continue
        text, why = version_of(machine, path)
        if text is None and name != "baton-router" and len(machine.host_name()) > HOST_NAME_MOST:
            continue  # as is said there
        if text is None:
            library = re.search(r"(\S+\.so\S*): cannot open shared object", why or "")
            findings.problem("build", f"{name} does not run: {why}", f"apt-get install the package of {library[1]} (apt-file search "
                             f"{library[1]}), or build again: ./baton serve" if library else "./baton serve, which builds it again")
        else:
            versions.add(re.sub(r"^.*? (\d)", r"\1", text, count=1))
    if len(versions) > 1:
        findings.warning("build", f"the programs are of several versions: {', '.join(sorted(versions))}", "./baton serve, which builds them "
                         "again")
    elif versions and machine.tree and versions != {machine.tree}:
        findings.warning("build", f"it is of {versions.pop()}, and the tree is of {machine.tree}", "./baton serve, which builds what changed")
    elif versions and not machine.build.missing:
        findings.ok("build", versions.pop())


def mpi(machine, findings):
    program = machine.has("mpirun")
    if program is None:
        findings.note("mpi", "no mpirun: needed for `mpirun` and for instances over several hosts, not by ./baton serve",
                      "apt-get install -y --no-install-recommends openmpi-bin")
        return
    said = machine.command("mpirun", "--version") or ""
    version = re.search(r"\(Open MPI\) (\S+)", said)
    library = re.search(r"Open MPI v?(\S+)", machine.probe.get("mpi", ""))  # of what is built
    text = f"{program}, Open MPI {version[1]}" if version else f"{program}, which is no Open MPI"
    if not version:
        findings.warning("mpi", text + ": Baton is built for that one", "apt-get install -y --no-install-recommends openmpi-bin")
    elif version[1].startswith("4.1.") and len(machine.host_name()) > MPIRUN_HOST_NAME_MOST:
        findings.warning("mpi", f"{text}: it aborts where the host's name has more than {MPIRUN_HOST_NAME_MOST} characters, and {machine.host_name()} "
                         f"has {len(machine.host_name())}", "hostname NAME, or hostnamectl set-hostname NAME, with a shorter one")
    elif library and library[1] != version[1]:
        findings.warning("mpi", f"{text}; what is built is linked with Open MPI {library[1]}: ranks that this mpirun starts may not find "
                         "each other", f"PATH with the mpirun of {library[1]}, or build again with the library of {version[1]}")
    elif machine.uid() == 0 and machine.environment.get("OMPI_ALLOW_RUN_AS_ROOT") != "1":
        findings.note("mpi", f"{text}; it refuses to run as root", "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    else:
        findings.ok("mpi", text)


def slurm(machine, findings):
    if machine.has("srun") is None:
        return
    missing = [name for name in ("sbatch", "sinfo", "scontrol") if machine.has(name) is None]
    kinds = machine.command("srun", "--mpi=list")
    if missing:
        findings.warning("slurm", f"srun is there, and not {', '.join(missing)}", "apt-get install -y slurm-client")
    elif kinds is not None and "pmix" not in kinds:
        findings.warning("slurm", "srun has no plugin mpi/pmix, with which instances start", "apt-get install -y slurm-wlm-basic-plugins libpmix2")
    elif kinds is None:
        findings.note("slurm", "srun is there and does not say its plugins (no slurm.conf, or no controller)", "scontrol ping")
    else:
        findings.ok("slurm", "srun, with mpi/pmix")
    if not machine.exists(MUNGE_SOCKET):
        findings.warning("munge", f"Slurm is there, and {MUNGE_SOCKET} is not: neither jobs nor --cluster-key-file with a credential work",
                         "systemctl start munge")


def examine(machine, findings):
    packages(machine, findings)
    build(machine, findings)
    mpi(machine, findings)
    slurm(machine, findings)
