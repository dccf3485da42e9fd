#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""oci.py run --rm [--device NAME] [--group-add GROUP] [-v FROM:TO] IMAGE COMMAND...
oci.py pod <FILE

The subset of podman and docker that containers.md uses: builds the OCI configuration that they would build and runs
crun. A device adds what /etc/cdi says for its name, or its node alone. The image is the host's /usr and our build
folder, read-only. The process is a user without groups and capabilities. The guest's kernel lacks seccomp and the
support for the devices cgroup, so the configuration uses neither.
"""
from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

Json = dict[str, Any]
USER = 1000
BUILD = os.environ["LAB_BUILD"]


def bind(source: str, destination: str, *options: str) -> Json:
    return {"destination": destination, "source": source, "type": "bind", "options": ["rbind", *options]}


def image() -> Json:
    """A container's description without any options: the OCI runtime specification, 1.0."""
    binaries = [bind(path, path, "ro") for path in ("/usr", BUILD)]
    links = [bind(path, path, "ro") for path in ("/bin", "/sbin", "/lib", "/lib64") if os.path.exists(path)]
    return {
        "ociVersion": "1.0.0",
        "process": {"terminal": False, "user": {"uid": USER, "gid": USER, "additionalGids": []}, "args": [], "cwd": "/",
                    "env": [f"PATH={BUILD}/bin:/usr/bin"], "noNewPrivileges": True, "capabilities": {}},
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                   {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                   *binaries, *links],
        "linux": {"namespaces": [{"type": "mount"}, {"type": "network"}, {"type": "pid"}], "devices": []},
        "annotations": {},
    }


def add_node(spec: Json, node: Json) -> None:
    """The node as a runtime creates it: number, owner and mode are the host's unless the caller overrides them."""
    host = os.stat(node.get("hostPath") or node["path"])
    spec["linux"]["devices"].append({
        "path": node["path"], "type": "b" if stat.S_ISBLK(host.st_mode) else "c",
        "major": node.get("major", os.major(host.st_rdev)), "minor": node.get("minor", os.minor(host.st_rdev)),
        "fileMode": node.get("fileMode", stat.S_IMODE(host.st_mode)), "uid": node.get("uid", host.st_uid), "gid": node.get("gid", host.st_gid)})


def apply(spec: Json, edits: Json) -> None:
    """Applies the CDI edits that our files use. Fails on any other edit, because no test covers it."""
    unknown = set(edits) - {"deviceNodes", "additionalGids"}
    assert not unknown, f"CDI edits that are not known here: {unknown}"
    for node in edits.get("deviceNodes", []):
        add_node(spec, node)
    spec["process"]["user"]["additionalGids"] += edits.get("additionalGids", [])


def add_device(spec: Json, name: str) -> None:
    if name.startswith("/"):
        add_node(spec, {"path": name})
        return
    kind, _, device = name.partition("=")
    for path in sorted(Path("/etc/cdi").glob("*.json")):
        known = json.loads(path.read_text())
        for one in known["devices"]:
            if (known["kind"], one["name"]) == (kind, device):
                apply(spec, one["containerEdits"])
                apply(spec, known.get("containerEdits", {}))
                return
    sys.exit(f"oci.py: no file of /etc/cdi has {name}")


def of_pod(pod: Json) -> Json:
    """The pod's only container. Fails on any other member, because no test covers it."""
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod") and set(pod) == {"apiVersion", "kind", "metadata", "spec"}, pod
    wanted = pod["spec"]
    [container] = wanted["containers"]
    assert set(wanted) == {"securityContext", "containers", "volumes"} and set(wanted["securityContext"]) == {"supplementalGroups"}, wanted
    assert set(container) == {"name", "image", "command", "resources", "volumeMounts"} and container["image"] == "IMAGE", container
    spec = image()
    spec["process"]["args"] = container["command"]
    spec["process"]["user"]["additionalGids"] += wanted["securityContext"]["supplementalGroups"]
    assert set(container["resources"]) == {"limits"}
    for name, count in container["resources"]["limits"].items():
        vendor, _, device = name.partition("/")
        assert (vendor, count) == ("squat.ai", 1), name
        add_device(spec, f"/dev/{device}")
    paths = {volume["name"]: volume["hostPath"] for volume in wanted["volumes"]}
    for mount in container["volumeMounts"]:
        path = paths[mount["name"]]
        assert path["type"] == "Directory" and Path(path["path"]).is_dir(), path
        spec["mounts"].append(bind(path["path"], mount["mountPath"]))
    return spec


def asked_for() -> Json:
    asked = argparse.ArgumentParser()
    asked.add_argument("verb", choices=["run"])
    asked.add_argument("--rm", action="store_true", required=True)
    asked.add_argument("--device", action="append", default=[])
    asked.add_argument("--group-add", action="append", default=[])
    asked.add_argument("-v", action="append", default=[])
    asked.add_argument("image", choices=["IMAGE"])
    asked.add_argument("command", nargs=argparse.REMAINDER)
    what = asked.parse_args()
    spec = image()
    spec["process"]["args"] = what.command
    for name in what.device:
        add_device(spec, name)
    for group in what.group_add:
        if group == "keep-groups": # of podman: the container keeps the caller's supplementary groups
            spec["annotations"]["run.oci.keep_original_groups"] = "1"
        else:
            spec["process"]["user"]["additionalGids"].append(int(group))
    spec["mounts"] += [bind(*volume.split(":")) for volume in what.v]
    return spec


def main() -> int:
    if sys.argv[1:] == ["pod"]:
        import yaml
        spec = of_pod(yaml.safe_load(sys.stdin))
    else:
        spec = asked_for()
    with tempfile.TemporaryDirectory(dir="/tmp") as bundle:
        (Path(bundle) / "rootfs").mkdir()
        for mount in spec["mounts"]:
            (Path(bundle) / "rootfs" / mount["destination"][1:]).mkdir(parents=True, exist_ok=True)
        (Path(bundle) / "config.json").write_text(json.dumps(spec))
        os.chmod(bundle, 0o755)
        return subprocess.run(["crun", "--cgroup-manager=disabled", "run", "--bundle", bundle, f"oci-{os.getpid()}"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
