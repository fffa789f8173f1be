"""Imports the library once, then forks a process for every program that the standard input names.

A start of Python with the library costs a second of processor, a fork a hundredth of that.
"""

import gc
import json
import os
import runpy
import sys

import matplotlib.pyplot  # noqa: F401

import dpb_gym
import dpb_gym.cli.app
import dpb_gym.papers
import dpb_gym.report
import dpb_gym.running.api

dpb_gym.agent_specs()
# The first call of a kernel initialises numba.
dpb_gym.evaluate("DPB/Recommendation-v0", ["random"], horizon=2, replicates=1, progress=False)
# A program ends with a collection, which would visit, and copy, all objects of this process.
gc.collect()
gc.freeze()
while child := os.fork() if (line := sys.stdin.readline()) else sys.exit():
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
# The child continues below and ends as the program's process.
words, folder, environment, out, err = json.loads(line)
for number, name in enumerate((os.devnull, out, err)):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
os.chdir(folder)
os.environ.update(environment)
sys.argv, sys.path[0] = words, os.path.dirname(words[0])
runpy.run_path(words[0], run_name="__main__")
