"""Rank and Reward calls of Azure Personalizer, answered by a private agent.

A client of Personalizer changes its address only: ``uvicorn personalizer_server:app``. Rewards are
protected by the session's budget; contexts are public. The script itself plays 300 customers and
prints the time of a Rank call. `vw_table` reads Vowpal Wabbit's JSON logs for `dpb_gym.advise`.
"""

import asyncio
import gc
import json
import time
import uuid

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import dpb_gym
from dpb_data.vowpal_wabbit import table as vw_table
from dpb_gym.problems.rounds import ProblemInfo

ACTIONS, NAMES = ["sport", "politics", "music"], ["hour", "age"]  # public; features lie in [0, 1]
DIM = len(ACTIONS) * (1 + len(NAMES))
PROBLEM = ProblemInfo("recommendation", 100_000, DIM, (0.0, 1.0), n_candidates=len(ACTIONS))
# Seeded noise is for demonstrations: in production use noise="system" (extra [secure]).
SESSION = dpb_gym.serve("one-pass-linear", "eps=1,delta=1e-6", PROBLEM, noise="seeded")
gc.collect()
gc.freeze()  # collections during calls skip the objects of the start, which take 20 ms
EVENTS = {}


def features(context):
    """Return each action's intercept and context features in a block of its own."""
    own = np.array([1.0, *(float(context.get(name, 0.0)) for name in NAMES)])
    return np.kron(np.eye(len(ACTIONS)), own) / np.sqrt(len(own))


async def rank(request: Request) -> Response:
    call = await request.json()
    if [action["id"] for action in call["actions"]] != ACTIONS:
        return JSONResponse({"error": {"message": f"the actions are {ACTIONS}"}}, 400)
    context = {k: v for part in call.get("contextFeatures", ()) for k, v in part.items()}
    number, chosen = SESSION.decide(features(context))
    event = call.get("eventId") or uuid.uuid4().hex
    EVENTS[event] = number
    ranking = [{"id": a, "probability": float(k == chosen)} for k, a in enumerate(ACTIONS)]
    answer = {"ranking": ranking, "eventId": event, "rewardActionId": ACTIONS[chosen]}
    return JSONResponse(answer, 201)


async def reward(request: Request) -> Response:
    number = EVENTS.pop(request.path_params["event"], None)
    if number is None:
        return JSONResponse({"error": {"message": "no such event, or rewarded before"}}, 404)
    SESSION.observe(number, float(np.clip((await request.json())["value"], 0.0, 1.0)))
    return Response(status_code=204)


PATH = "/personalizer/v1.0"
ROUTES = {f"{PATH}/rank": rank, f"{PATH}/events/{{event}}/reward": reward}
app = Starlette(routes=[Route(path, call, methods=["POST"]) for path, call in ROUTES.items()])


async def post(path, body):
    """Call the application in this process; return its status and JSON."""
    sent = []
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}

    async def receive():
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(body or b"null")


async def main():
    rng, seconds = np.random.default_rng(0), []
    for _ in range(300):
        age = rng.random()
        call = {"contextFeatures": [{"age": age}], "actions": [{"id": a} for a in ACTIONS]}
        start = time.perf_counter()
        _, answer = await post(f"{PATH}/rank", call)
        seconds.append(time.perf_counter() - start)
        liked = answer["rewardActionId"] == ("music" if age < 0.5 else "politics")
        await post(f"{PATH}/events/{answer['eventId']}/reward", {"value": float(liked)})
    print(f"99% of Rank calls took at most {1000 * np.quantile(seconds, 0.99):.1f} ms")
    print(SESSION.guarantee)


if __name__ == "__main__":
    decided = '{"_label_cost": -1, "_label_probability": 0.8, "_labelIndex": 0, "a": [2, 1], '
    context = '"c": {"User": {"age": 31, "town": "Oslo"}, "_multi": [{"id": "sport"}]}}'
    print(vw_table([decided + context, '{"RewardValue": 1.0, "EventId": "late"}']))
    asyncio.run(main())
