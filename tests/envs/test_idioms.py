"""Common Gymnasium usage: wrappers, vector helpers, training loops, pictures."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers as w

import dpb_gym
from dpb_gym.envs import rendering
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.feedback import PrivateResponse, RandomizedResponse

IDS = sorted(e for e in ENVIRONMENTS if e.startswith("DPB/"))
SMALL = {"DPB/MovieLensReplay-v0": {"dim": 6}, "DPB/JesterReplay-v0": {"dim": 6}}

WRAPPERS = {
    "statistics": w.RecordEpisodeStatistics,
    "time limit": lambda env: w.TimeLimit(env, 3),
    "flat": w.FlattenObservation,
    "normal observation": w.NormalizeObservation,
    "normal reward": w.NormalizeReward,
    "clipped reward": lambda env: w.ClipReward(env, 0.0, 0.5),
    "stacked": lambda env: w.FrameStackObservation(env, 3),
    "time aware": lambda env: w.TimeAwareObservation(w.TimeLimit(env, 5)),
    "autoreset": w.Autoreset,
    "frames": w.RenderCollection,
    "picture observed": lambda env: w.AddRenderObservation(env, render_only=False),
}


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_every_wrapper_on_every_id(env_id):
    for wrap in WRAPPERS.values():
        env = gym.make(env_id, horizon=5, render_mode="rgb_array", **SMALL.get(env_id, {}))
        env = wrap(env)
        observation, _ = env.reset(seed=3)
        assert env.observation_space.contains(observation)
        for _ in range(3):
            observation = env.step(env.action_space.sample())[0]
            assert env.observation_space.contains(observation)
        env.close()


@pytest.mark.parametrize("env_id", IDS)
def test_a_training_loop_over_synchronous_copies(env_id):
    """Single files of CleanRL: thunks, episode statistics, and the last info of an episode."""

    def thunk(seed):
        def make():
            env = gym.make(env_id, horizon=4, render_mode="rgb_array", **SMALL.get(env_id, {}))
            env = w.RecordEpisodeStatistics(env)
            env.action_space.seed(seed)
            return env

        return make

    envs = gym.vector.SyncVectorEnv([thunk(i) for i in range(2)])
    native = gym.make_vec(env_id, num_envs=2, horizon=4, **SMALL.get(env_id, {}))
    native = gym.wrappers.vector.RecordEpisodeStatistics(native)
    for batch in (envs, native):
        batch.reset(seed=1)
        returns = []
        for _ in range(12):
            _, reward, terminated, _, infos = batch.step(batch.action_space.sample())
            assert reward.shape == (2,) and not terminated.any()
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
                assert set(infos["episode"]["l"][infos["_episode"]]) == {4}
        assert len(returns) == 4 and np.isfinite(returns).all()
        batch.close()


VECTOR_WRAPPERS = (
    w.vector.RecordEpisodeStatistics,
    w.vector.FlattenObservation,
    w.vector.NormalizeObservation,
    w.vector.NormalizeReward,
    lambda envs: w.vector.ClipReward(envs, -1.0, 1.0),
    w.vector.DictInfoToList,
)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", [None, "sync"])
def test_every_vector_wrapper_on_every_id(env_id, mode):
    kwargs = {"horizon": 4, **SMALL.get(env_id, {})}
    for wrap in VECTOR_WRAPPERS:
        envs = wrap(gym.make_vec(env_id, num_envs=2, vectorization_mode=mode, **kwargs))
        observation, _ = envs.reset(seed=0)
        for _ in range(6):
            observation, reward, *_ = envs.step(envs.action_space.sample())
        assert envs.observation_space.contains(observation) and reward.shape == (2,)
        envs.close()


@pytest.mark.parametrize("env_id", [i for i in IDS if "Pricing" in i])
def test_the_chain_of_continuous_control(env_id):
    """CleanRL's order of wrappers, with a Gaussian policy that knows no bounds."""

    def make():
        env = w.RecordEpisodeStatistics(w.FlattenObservation(gym.make(env_id, horizon=6)))
        env = w.NormalizeObservation(w.ClipAction(env))
        env = w.TransformObservation(env, lambda o: np.clip(o, -10, 10), env.observation_space)
        return w.TransformReward(w.NormalizeReward(env, gamma=0.99), lambda r: np.clip(r, -10, 10))

    envs, rng = gym.vector.SyncVectorEnv([make, make]), np.random.default_rng(0)
    envs.reset(seed=1)
    for _ in range(8):
        action = rng.normal(0.0, 3.0, envs.action_space.shape).astype(np.float32)
        observation, reward, *_ = envs.step(action)
        assert np.isfinite(observation).all() and np.isfinite(reward).all()


@pytest.mark.parametrize("env_id", IDS)
def test_pictures_and_tables(env_id):
    kwargs = {"horizon": 2, **SMALL.get(env_id, {})}
    for mode in ("ansi", "rgb_array"):
        env = gym.make(env_id, render_mode=mode, **kwargs)
        vec = gym.make_vec(env_id, num_envs=2, render_mode=mode, **kwargs)
        bare = gym.make(env_id, **kwargs)
        env.reset(seed=2), vec.reset(seed=2), bare.reset(seed=2)
        before, regret = env.render(), 0.0
        for t in range(2):
            action = env.action_space.sample()
            seen = env.step(action)
            vec.step(np.stack([np.asarray(action)] * 2))
            regret += seen[4]["regret"]
            assert seen[1] == bare.step(action)[1], "looking changes nothing"
            picture = env.render()
            assert np.array_equal(picture, vec.render()[0])
            if mode == "ansi":
                assert f"round {t + 1} of 2" in picture and f"{regret:.3f}" in picture
            else:
                assert picture.dtype == np.uint8 and picture.shape == (320, 480, 3)
                assert 0.01 < (picture != 255).mean() < 0.6
            assert not np.array_equal(picture, before)
            before = picture
        vec.step(vec.action_space.sample())  # the next episode begins
        assert mode != "ansi" or "waits" in vec.render()[0]


def test_the_table_shows_the_offer_and_what_was_bought():
    env = gym.make("DPB/Assortment-v0", n_items=20, capacity=3, render_mode="ansi", horizon=50)
    env.reset(seed=0)
    seen = set()
    for _ in range(30):
        slate = env.action_space.sample()
        choice = env.step(slate)[4]["choice"]
        lines = env.render().splitlines()[2:]
        items = slate.tolist()
        assert [line.split()[1] for line in lines] == list(dict.fromkeys(map(str, items)))
        for line in lines:
            item, times = int(line.split()[1]), items.count(int(line.split()[1]))
            assert ("bought" in line) == (choice >= 0 and items[choice] == item)
            assert (f"{times} times in the slate" in line) == (times > 1)
        seen.add(choice)
    assert len(seen) > 2
    assert not any("theta" in line or "utility" in line for line in lines)


def test_a_picture_has_bars_of_the_values_and_the_curve_of_the_regret():
    def colour(text):
        return [int(text[k : k + 2], 16) for k in (1, 3, 5)]

    revenues = [0.25, 0.5, 1.0]
    env = gym.make(
        "DPB/Assortment-v0",
        n_items=3,
        capacity=3,
        horizon=4,
        revenues=revenues,
        render_mode="rgb_array",
    )
    env.reset(seed=0)
    env.step(np.arange(3))
    picture = env.render()
    offered = (picture == colour(rendering.PICKED)).all(axis=2)
    bought = (picture == colour(rendering.WON)).all(axis=2)
    heights = (offered | bought)[:, :240].sum(axis=0)
    tops = sorted({int(h) for h in heights if h > 0})
    full = max(tops)
    assert [round(h / full, 2) for h in tops] == revenues
    curve = (np.abs(picture.astype(int) - colour(rendering.CURVE)) < 40).all(axis=2)
    assert curve[:, 280:].any() and not curve[:, :280].any()


def test_a_list_of_frames_and_no_mode():
    env = gym.make("DPB/Pricing-v0", render_mode="rgb_array_list", horizon=5)
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
    frames = env.render()
    assert len(frames) == 4
    vec = gym.make_vec("DPB/Pricing-v0", num_envs=2, render_mode="rgb_array_list", horizon=3)
    vec.reset(seed=0)
    env.reset(seed=0)
    env.action_space.seed(1)
    for _ in range(2):
        action = env.action_space.sample()
        env.step(action)
        vec.step(np.stack([action, action]))
    ours, single = vec.render(), env.render()
    assert len(ours) == 2 and len(ours[0]) == len(single) == 3
    for a, b in zip(ours[0][1:], single[1:]):
        assert a.shape == b.shape == (320, 480, 3)
    assert vec.render() == ([], [])
    silent = gym.make("DPB/Pricing-v0")
    silent.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        assert silent.unwrapped.render() is None


def test_private_feedback_draws_no_picture():
    env = gym.make("DPB/Pricing-v0", render_mode="rgb_array", horizon=5)
    env = PrivateResponse(env, RandomizedResponse(1.0))
    env.reset(seed=0)
    with pytest.raises(ParameterError, match="raw response"):
        env.render()


def test_a_new_environment_is_drawn_too():
    from dpb_gym.problems.recommendation import RecommendationProblem

    dpb_gym.register_environment(
        "Test/Drawn-v0", RecommendationProblem, kind="recommendation", dim=3, fresh=True
    )
    env = gym.make("Test/Drawn-v0", render_mode="ansi")
    env.reset(seed=0)
    env.step(2)
    assert "candidate 2" in env.render()


def test_a_window_shows_every_round_and_closes(monkeypatch):
    pygame = pytest.importorskip("pygame", reason="needs the [render] extra")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with pytest.warns(UserWarning, match="HumanRendering wrapper"):
        env = gym.make("DPB/Assortment-v0", horizon=5, render_mode="human")
    twin = gym.make("DPB/Assortment-v0", horizon=5, render_mode="rgb_array")
    action = np.arange(env.action_space.shape[0])
    for play in ("reset", "step", "step"):
        for one in (env, twin):
            one.reset(seed=1) if play == "reset" else one.step(action)
        seen = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
        np.testing.assert_array_equal(seen, twin.render())
    env.close()
    assert not pygame.display.get_init()


@pytest.mark.slow
def test_videos_are_recorded(tmp_path):
    pytest.importorskip("moviepy", reason="needs the [render] extra")
    env = gym.make("DPB/Pricing-v0", horizon=4, render_mode="rgb_array")
    env = w.RecordVideo(env, str(tmp_path / "videos"), disable_logger=True)
    env.reset(seed=0)
    for _ in range(4):
        env.step(env.action_space.sample())
    env.close()
    (video,) = (tmp_path / "videos").glob("*.mp4")
    assert video.stat().st_size > 1000


def test_a_step_before_reset_says_so():
    for env in (gym.make("DPB/Pricing-v0").unwrapped, gym.make_vec("DPB/Pricing-v0", 2).unwrapped):
        with pytest.raises(HorizonExceeded, match="call reset"):
            env.step(env.action_space.sample())
