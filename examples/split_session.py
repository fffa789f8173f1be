"""Prices without a trusted curator: devices, a shuffler and a server as three processes.

The device process has the customers: their features, prices and purchases stay in it. The shuffler
process gets each device's randomised bits and passes on how many ones a whole batch has. The server
process has the policy. It learns neither whose bits it counts nor which bits belong together.

  python examples/split_session.py [CUSTOMERS]
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection

import dpb_gym
from dpb_gym.devices import Device
from dpb_gym.privacy import CountingShuffler

BUDGET = "rho=1@shuffler"


def server(devices: Connection, batches: Connection, customers: int) -> None:
    """Tell every device the released values, and learn from the shuffler's batches."""
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=customers)
    session = dpb_gym.serve("one-pass-pricing", BUDGET, problem, warm=False)
    print(f"server: {session.guarantee}")
    received = 0
    while devices.recv() == "a customer":
        while batches.poll():
            session.receive_batch(batches.recv())
            received += 1
        devices.send(session.device().public)
    print(f"server: received {received} batches")


def shuffler(devices: Connection, batches: Connection) -> None:
    """Take the bits of every device, and pass on batches when they are complete."""
    counting = CountingShuffler()
    while (message := devices.recv()) is not None:
        batch = counting.submit(message)
        if batch is not None:
            batches.send(batch)
        devices.send("taken")


def customers(to_server: Connection, to_shuffler: Connection, number: int) -> float:
    """Simulate customers; return the mean regret of a customer in the last half."""
    world = dpb_gym.make_problem("DPB/Pricing-v0", horizon=number).instance([7])
    regret = 0.0
    for t in range(1, number + 1):
        to_server.send("a customer")
        device = Device(to_server.recv())
        price = device.decide(world.context().features[0])
        outcome = world.respond([price])
        if t > number // 2:
            regret += float(outcome.regret[0])
        message = device.message(outcome.feedback.demand[0])
        if message["bits"]:  # after the last batch no bits are needed
            to_shuffler.send(message)
            to_shuffler.recv()
        if t < number:
            world.advance()
    to_server.send("done")
    to_shuffler.send(None)
    return regret / (number - number // 2)


def main(number: int = 2000) -> None:
    """Run the three sides."""
    context = multiprocessing.get_context("spawn")
    to_server, from_devices = context.Pipe()
    to_shuffler, from_senders = context.Pipe()
    batches, from_shuffler = context.Pipe()
    sides = [
        context.Process(target=server, args=(from_devices, from_shuffler, number)),
        context.Process(target=shuffler, args=(from_senders, batches)),
    ]
    for side in sides:
        side.start()
    regret = customers(to_server, to_shuffler, number)
    for side in sides:
        side.join()
    print(f"customers: {regret:.4f} of revenue lost per customer in the second half")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
