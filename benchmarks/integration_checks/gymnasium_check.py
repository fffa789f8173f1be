"""Gymnasium's own tests of environments, vector environments and wrappers, with our ids.

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
FOLDERS = ("tests/vector", "tests/wrappers", "tests/envs/test_envs.py")
OURS = "dpb_gym:DPB/Recommendation-v0"
EQUIVALENCE = "tests/wrappers/vector/test_vector_wrappers.py::test_vector_wrapper_equivalence"
LEFT_OUT = {
    "reads an attribute of CartPole": (
        "tests/vector/test_async_vector_env.py::test_call_async_vector_env",
        "tests/vector/test_sync_vector_env.py::test_call_sync_vector_env",
        "tests/vector/test_vector_wrapper.py::test_vector_env_wrapper_attributes",
    ),
    "takes infos at `reset` to be empty": (
        "tests/vector/test_async_vector_env.py::test_reset_async_vector_env",
    ),
    "takes observations to have the four numbers of CartPole": (
        "tests/wrappers/test_frame_stack_observation.py::test_padding_type",
        "tests/wrappers/vector/test_vectorize_transform.py::test_vectorize_dict_to_box_obs",
        f"{EQUIVALENCE}[{OURS}-RescaleObservation",
    ),
    "takes episodes to end where those of CartPole do": (
        "tests/wrappers/test_record_video.py::test_video_folder_and_filenames",
        "tests/wrappers/test_record_video.py::test_both_episodic_and_step_trigger",
        "tests/wrappers/vector/test_record_video.py::test_video_folder_and_filenames",
        "tests/wrappers/vector/test_record_video.py::test_both_episodic_and_step_trigger",
    ),
    "takes the longest episode to have 500 steps": (
        "tests/wrappers/test_time_limit.py::test_max_episode_steps",
    ),
    # as CartPole does with `vectorization_mode="sync"`, and then Gymnasium's window fails too
    "takes `rgb_array_list` of vector environments to be one picture per lane": (
        "tests/wrappers/vector/test_human_rendering.py::test_render_modes",
    ),
    "needs Box2D": (
        "tests/vector/test_sync_vector_env.py::test_sync_vector_env_seed",
        "tests/wrappers/test_normalize_observation.py::test_normalize_obs_with_vector",
        "tests/wrappers/test_resize_observation.py::test_resize_shapes",
        "tests/wrappers/test_resize_observation.py::test_invalid_input",
        f"{EQUIVALENCE}[CarRacing-v3",
    ),
    "needs MuJoCo": tuple(
        f"tests/wrappers/vector/test_human_rendering.py::test_num_envs_screen_size[{size}-{n}-Ant-v4]"
        for size in ("None", "screen_size1", "screen_size2", "screen_size3")
        for n in (1, 3, 9)
    ),
}
"""Tests that say nothing about our ids, by the reason; a name leaves out all that begin with it."""


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
    for names in LEFT_OUT.values():
        for name in names:
            words += ["--deselect", name]
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1]
    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.M)
    print(done.stdout[-6000:], file=sys.stderr)
    assert not failed and "passed" in last, f"{last}; {', '.join(failed)}"
    return re.sub(" in [0-9.]+s.*", "", last.strip("= "))


WHAT = "of environments, vector environments and wrappers, with our ids"
attempt("Gymnasium's own tests", WHAT, play)
