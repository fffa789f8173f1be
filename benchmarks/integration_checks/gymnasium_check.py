"""Gymnasium's own tests of environments and vector environments, with our ids.

In a copy of its tests CartPole-v1 is replaced by our id, and our ids join its list of environments.
GYMNASIUM_SOURCE names a copy of the repository.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from rows import attempt

SOURCE = Path(os.environ["GYMNASIUM_SOURCE"])
FOLDERS = ("tests/vector", "tests/envs/test_envs.py")
OURS = "dpb_gym:DPB/Recommendation-v0"
# They read CartPole's own attributes, take infos at `reset` to be empty, or need Box2D.
ABOUT_OTHERS = (
    "tests/vector/test_async_vector_env.py::test_call_async_vector_env",
    "tests/vector/test_sync_vector_env.py::test_call_sync_vector_env",
    "tests/vector/test_vector_wrapper.py::test_vector_env_wrapper_attributes",
    "tests/vector/test_async_vector_env.py::test_reset_async_vector_env",
    "tests/vector/test_sync_vector_env.py::test_sync_vector_env_seed",
)


def prepare():
    utils = SOURCE / "tests/envs/utils.py"
    text = utils.read_text("utf-8")
    wanted = '"gymnasium.envs." in env_spec.entry_point'
    assert wanted in text
    ours = 'any(own in env_spec.entry_point for own in ("gymnasium.envs.", "dpb_gym."))'
    first = "import gymnasium as gym\n"
    text = text.replace(wanted, ours).replace(first, f"{first}import dpb_gym\n", 1)
    utils.write_text(text, "utf-8")
    for folder in FOLDERS:
        for file in sorted((SOURCE / folder).rglob("*.py")):
            content = file.read_text("utf-8")
            if "CartPole-v1" in content:
                file.write_text(content.replace("CartPole-v1", OURS), "utf-8")


def play():
    prepare()
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *FOLDERS]
    for name in ABOUT_OTHERS:
        words += ["--deselect", name]
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1]
    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.M)
    print(done.stdout[-6000:], file=sys.stderr)
    assert not failed and "passed" in last, f"{last}; {', '.join(failed)}"
    return re.sub(" in [0-9.]+s.*", "", last.strip("= "))


attempt("Gymnasium's own tests", "of vector environments and environments, with our ids", play)
