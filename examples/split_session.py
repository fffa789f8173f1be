"""Prices without a trusted party: customers' devices and a server as two processes.

The device process has the customers: their features, prices and purchases stay in it. The server
process has the policy and sees messages only. Each message is private in itself.

  python examples/split_session.py [CUSTOMERS]
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection

import dpb_gym

BUDGET = "eps=2,delta=1e-6@local"


def server(line: Connection, customers: int) -> None:
    """Give a device to everyone who asks, and learn from the messages."""
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=customers)
    session = dpb_gym.serve("one-pass-pricing", BUDGET, problem, noise="seeded", warm=False)
    print(f"server: {session.guarantee}")
    while (asked := line.recv()) is not None:
        if asked == "a customer":
            line.send(session.device())
        else:
            session.receive(asked)


def customers(line: Connection, number: int) -> float:
    """Simulate customers; return the mean regret of a customer in the last half."""
    world = dpb_gym.make_problem("DPB/Pricing-v0", horizon=number).instance([7])
    regret = 0.0
    for t in range(1, number + 1):
        line.send("a customer")
        device = line.recv()
        price = device.decide(world.context().features[0])
        outcome = world.respond([price])
        if t > number // 2:
            regret += float(outcome.regret[0])
        line.send(device.message(outcome.feedback.demand[0]))
        if t < number:
            world.advance()
    line.send(None)
    return regret / (number - number // 2)


def main(number: int = 2000) -> None:
    """Run both sides."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=server, args=(there, number))
    process.start()
    regret = customers(here, number)
    process.join()
    print(f"customers: {regret:.4f} of revenue lost per customer in the second half")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
