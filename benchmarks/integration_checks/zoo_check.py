"""rl-baselines3-zoo: its training script, with --gym-packages dpb_gym."""

import os
import subprocess
import sys
import tempfile

from rows import attempt

FOLDER = tempfile.mkdtemp()
CONFIG = os.path.join(FOLDER, "dpb.yml")
with open(CONFIG, "w") as file:
    file.write(
        "DPB/Pricing-v0:\n  policy: MlpPolicy\n  n_timesteps: 200\n  n_steps: 32\n"
        "  batch_size: 32\n"
        "DPB/Recommendation-v0:\n  policy: MlpPolicy\n  n_timesteps: 200\n"
    )


def train(algorithm, env, *more):
    words = ["--algo", algorithm, "--env", env, "--gym-packages", "dpb_gym", "-f", FOLDER]
    command = [sys.executable, "-m", "rl_zoo3.train", *words, "-n", "200", "--eval-freq", "-1"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, cwd=FOLDER)
    lines = (done.stderr or done.stdout).strip().splitlines() or [""]
    assert done.returncode == 0, lines[-1]
    return f"train.py --algo {algorithm} --env {env} --gym-packages dpb_gym"


for algorithm, env in (("ppo", "DPB/Pricing-v0"), ("dqn", "DPB/Recommendation-v0")):
    attempt(
        f"rl-baselines3-zoo {algorithm}",
        "rl_zoo3.train",
        lambda a=algorithm, e=env: train(a, e),
        "-conf dpb.yml, with hyperparameters under the environment's id",
        lambda a=algorithm, e=env: train(a, e, "-conf", CONFIG),
    )
