# SPDX-License-Identifier: Apache-2.0
"""packaging/compose.yaml without containers: each service's command line is a process of an installed tree, at a loopback
address in place of its own. Health checks are asked as they stand."""
import ipaddress
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from installed import ROOT, SYSTEM_PATH, Home, free_port, install, small_model, wait_until

try:
    import yaml
except ImportError:  # a python3 beside the system's, which has Debian's packages
    if sys.executable == "/usr/bin/python3" or not os.path.exists("/usr/bin/python3"):
        raise
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])

WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")


def document():
    with open(os.path.join(ROOT, "packaging/compose.yaml"), encoding="utf-8") as f:
        return yaml.safe_load(f)


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text).group(1))


class Compose(unittest.TestCase):
    def test_compose_file_references_exist(self):
        whole = document()
        services = whole["services"]
        self.assertEqual(set(services), {"key", "router", *WORKERS})
        subnet = ipaddress.ip_network(whole["networks"]["cluster"]["ipam"]["config"][0]["subnet"])
        addresses = [ipaddress.ip_address(s["networks"]["cluster"]["ipv4_address"]) for s in services.values() if "networks" in s]
        self.assertEqual(len(set(addresses)), 5)
        for address in addresses:
            self.assertIn(address, subnet)
        for name, service in services.items():
            build = service["build"]
            self.assertTrue(os.path.exists(os.path.join(ROOT, "packaging", build["context"], build["dockerfile"])), name)
            self.assertTrue(set(service.get("depends_on", {})) <= set(services))
            for volume in service["volumes"]:
                source = volume.rsplit(":/")[0].partition(":/")[0]
                self.assertTrue(source.startswith("${MODELS") or source in whole["volumes"], volume)
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), "it is insecure beyond this machine")
        with open(os.path.join(ROOT, "packaging/Dockerfile"), encoding="utf-8") as f:
            ports = re.search(r"^EXPOSE (.*)$", f.read(), re.M).group(1).split()
        self.assertEqual([port.split(":")[1:] for port in services["router"]["ports"]], [[port, port] for port in ports])

    def test_each_service_has_its_own_name_and_address_and_the_time_that_stopping_takes(self):
        services = document()["services"]
        for name in ("router", *WORKERS):
            service = services[name]
            address = service["networks"]["cluster"]["ipv4_address"]
            options = dict(word.lstrip("-").partition("=")[::2] for word in service["command"])
            self.assertEqual(options["name"], name)
            self.assertEqual(options["cluster-key-file"], "/var/lib/baton/cluster-key")
            check = service["healthcheck"]["test"]
            if name == "router":
                self.assertEqual(options["listen"], f"tcp://{address}:7000")
                self.assertEqual(check[2:], [])
            else:
                self.assertEqual("tcp://" + check[2].replace(":8002", ":7000"), options["join"])
                self.assertEqual(check[3], name)
                self.assertEqual(os.path.basename(service["entrypoint"][0]), f"baton-{name.split('-')[0]}-worker")
            self.assertGreater(seconds(service["stop_grace_period"]), 2 + 30 + 12)


class Running(unittest.TestCase):
    """All services as processes. Where a container has /usr/local, /models and /var/lib/baton these have folders of the
    test's, and in place of its address they have 127.N.N.x."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="bt-compose-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.home = Home()
        self.addCleanup(self.home.remove)
        os.mkdir(os.path.join(self.dir, "models"))
        os.rename(small_model(self.dir), os.path.join(self.dir, "models/m.gguf"))
        os.mkdir(os.path.join(self.dir, "state"))
        net = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}"
        self.http, self.grpc, self.metrics, control = (free_port() for _ in range(4))
        self.router = f"{net}.2"
        self.words = [("/usr/local", install(self.dir)), ("/models", os.path.join(self.dir, "models")),
                      ("/var/lib/baton", os.path.join(self.dir, "state")), ("10.89.7", net), ("eth0", "lo"),
                      (":7000", f":{control}"), (":8002", f":{self.metrics}"), ("${MODEL:?is the file of the model}", "m.gguf")]
        self.environment = {"PATH": SYSTEM_PATH, "HOME": os.path.join(self.dir, "state"), "LC_ALL": "C.UTF-8",
                            "BATON_HTTP": f"{self.router}:{self.http}", "BATON_GRPC": f"{self.router}:{self.grpc}",
                            "BATON_METRICS": f"{self.router}:{self.metrics}", "BATON_LAME_DUCK_MS": "0",
                            "BATON_KV_MEMORY": "16m", "BATON_THREADS": "1"}
        self.services = document()["services"]
        self.processes = {}
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def here(self, words):
        out = []
        for word in words:
            for there, here in self.words:
                word = word.replace(there, here)
            self.assertNotIn("${", word)
            out.append(word)
        return out

    def start(self, name):
        service = self.services[name]
        with open(os.path.join(self.dir, name + ".log"), "ab") as log:
            self.processes[name] = subprocess.Popen(self.here(service["entrypoint"] + service.get("command", [])),
                                                    env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self, name):
        with open(os.path.join(self.dir, name + ".log"), encoding="utf-8") as f:
            return f.read()

    def is_healthy(self, name):
        """In a container the router's own check is for its loopback address."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        self.assertEqual(kind, "CMD")
        command = self.here(command)
        if name == "router":
            script = os.path.join(self.dir, "health")
            with open(command[0], encoding="utf-8") as f, open(script, "w", encoding="utf-8") as out:
                out.write(f.read().replace("127.0.0.1", self.router))
            command = ["bash", script]
        return subprocess.run(command, env=self.environment, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def ask(self):
        baton = os.path.join(self.words[0][1], "bin/baton")
        return self.home.run(baton, "ask", "Hello", "--max-tokens", "8", BATON_HTTP=f"{self.router}:{self.http}")

    def test_compose_cluster_survives_the_loss_of_one_service(self):
        self.start("key")
        self.assertEqual(self.processes["key"].wait(60), 0, self.log("key"))
        key = os.path.join(self.dir, "state/cluster-key")
        self.assertEqual(os.stat(key).st_mode & 0o777, 0o600)
        with open(key, encoding="ascii") as f:
            first = f.read()
        self.start("key")  # once more, as each `up` does: it stays
        self.assertEqual(self.processes["key"].wait(60), 0)
        with open(key, encoding="ascii") as f:
            self.assertEqual(f.read(), first)
        for name in WORKERS:  # who depends on the key alone may come in any order
            self.start(name)
        self.assertFalse(self.is_healthy("decode-0"))
        self.start("router")
        for name in ("router", *WORKERS):
            wait_until(f"{name} is healthy", lambda name=name: self.is_healthy(name) or self.processes[name].poll() is not None, 120)
            self.assertIsNone(self.processes[name].poll(), self.log(name))
        self.assertTrue(self.ask())
        for name in ("prefill-0", "prefill-1"):
            self.assertNotIn("by shm", self.log(name))

        self.processes["decode-0"].send_signal(signal.SIGKILL)
        self.processes["decode-0"].wait()
        wait_until("decode-0 is not healthy", lambda: not self.is_healthy("decode-0"))
        self.assertTrue(self.is_healthy("router"))
        self.assertTrue(self.ask())
        self.start("decode-0")
        wait_until("decode-0 is healthy", lambda: self.is_healthy("decode-0"))
        self.assertTrue(self.ask())

        for name in ("router", *WORKERS):
            self.processes[name].terminate()
        for name in ("router", *WORKERS):
            self.assertEqual(self.processes[name].wait(60), 0, self.log(name))


if __name__ == "__main__":
    unittest.main()
