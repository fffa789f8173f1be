"""CleanRL: its scripts, unchanged, on our ids. CLEANRL_SOURCE names a copy of the repository."""

import os
import subprocess
import sys
import tempfile

from rows import attempt

RUNS = {
    "dqn.py": ["--env-id", "dpb_gym:DPB/Recommendation-v0", "--learning-starts", "100"],
    "ppo.py": ["--env-id", "dpb_gym:DPB/Recommendation-v0", "--num-envs", "2", "--num-steps", "64"],
    "c51.py": ["--env-id", "dpb_gym:DPB/Recommendation-v0", "--learning-starts", "100"],
    "ppo_continuous_action.py": ["--env-id", "dpb_gym:DPB/Pricing-v0", "--num-steps", "128"],
    "ddpg_continuous_action.py": ["--env-id", "dpb_gym:DPB/Pricing-v0", "--learning-starts", "100"],
    "td3_continuous_action.py": ["--env-id", "dpb_gym:DPB/Pricing-v0", "--learning-starts", "100"],
    "sac_continuous_action.py": ["--env-id", "dpb_gym:DPB/Pricing-v0", "--learning-starts", "150"],
}


def run(script, options):
    source = os.environ["CLEANRL_SOURCE"]
    command = [sys.executable, os.path.join(source, "cleanrl", script), *options]
    command += ["--total-timesteps", "256", "--no-cuda"]
    paths = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
        )
    lines = (done.stderr or done.stdout).strip().splitlines() or [""]
    assert done.returncode == 0, lines[-1]
    return " ".join(options[:2])


for script, options in RUNS.items():
    attempt(f"CleanRL {script}", "256 steps", lambda s=script, o=options: run(s, o))
