"""Laws of a server: tokens are conserved, leaps change nothing, memory is enough."""

from dataclasses import replace
from typing import Any

import pytest

from sim.engine.live_cluster import LiveCluster
from sim.jobs.generation.server import Request, Server, Speed
from tests.jobs.generation.servers import Stepping, play, requests, speed

MODELS = ("llama3-8b", "gpt-oss-20b", "nemotron-3-nano")  # windows, states


def small_cache(of: Speed, tokens: int) -> Speed:
    """The same with a cache of about so many tokens, of ten sequences if they have states."""
    room = of._room - of.weights - tokens * of.bytes_per_token - 10 * of.state_bytes
    return Speed(of.model, of.machine, replace(of.engine, workspace=room), of.layout)


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("gap", [0.0, 0.037])
def test_leaps_are_steps_one_by_one(seed: int, model: str, gap: float) -> None:
    of = speed(model, (("sequences", 13), ("budget", 300)))
    of = small_cache(of, (900, 1800, 100_000)[seed % 3])
    asked = requests(seed, 40)
    leaping, fast = play(Server, of, asked, gap)
    stepping, slow = play(Stepping, of, asked, gap)
    assert leaping.batch.preemptions == stepping.batch.preemptions
    for one, other in zip(fast, slow, strict=True):
        assert one.ended == pytest.approx(other.ended, rel=1e-9)
        assert one.first == pytest.approx(other.first, rel=1e-9)
        assert (one.tokens, one.preempted) == (other.tokens, other.preempted)
    assert leaping.busy == pytest.approx(stepping.busy, rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_tokens_and_memory_are_conserved_where_sequences_lose_their_caches(model: str) -> None:
    of = small_cache(speed(model, (("sequences", 50),)), 1500)
    asked = requests(1, 60)
    server, answers = play(Server, of, asked)
    assert server.batch.preemptions > 0
    assert all(answer.finished for answer in answers)
    assert server.batch.tokens == sum(request.answer for request in asked)
    assert server.batch.cache.used == pytest.approx(0.0, abs=1e-3)
    assert max(moment.used for moment in server.moments) <= of.cache_bytes * (1 + 1e-9)


def test_nothing_loses_an_infinite_cache() -> None:
    server, _ = play(Server, small_cache(speed(), 1_000_000), requests(2, 60))
    assert server.batch.preemptions == 0


@pytest.mark.parametrize("when", [0.0, 0.5, 1.0, 1.7])
def test_what_is_aborted_keeps_its_tokens(when: float) -> None:
    of, cluster = speed(), LiveCluster(speed().machine)
    server, asked = Server(cluster, of), requests(3, 30, longest=400)
    done = [server.submit(request) for request in asked]
    cluster.run(cluster.sleep(when))
    live = [request for request, event in zip(asked, done, strict=True) if not event.triggered]
    answers = [server.abort(request) for request in live]
    cluster.run()
    assert server.batch.tokens == sum(event.value.tokens for event in done)
    assert server.batch.cache.used == pytest.approx(0.0, abs=1e-3)
    assert all(answer.tokens <= answer.request.answer for answer in answers)
    again = [
        server.submit(Request(a.request.prompt, a.request.answer - a.tokens, None, a.tokens))
        for a in answers
        if not a.finished
    ]
    cluster.run()
    assert all(event.value.finished for event in again)
    assert server.batch.tokens == sum(request.answer for request in asked)


def test_tokens_are_counted_by_version_and_a_pause_costs_its_seconds() -> None:
    def run(pause: float) -> tuple[float, dict[int, int]]:
        cluster = LiveCluster(speed().machine)
        server = Server(cluster, speed())
        done = server.submit(Request(100, 200))

        def swap() -> Any:
            yield cluster.sleep(0.5)
            yield server.pause()
            yield cluster.sleep(pause)
            yield server.swap_weights(7)
            server.resume()

        cluster.start(swap())
        cluster.run()
        return done.value.ended, done.value.versions

    (at_once, versions), (later, same) = run(0.0), run(3.0)
    assert later - at_once == pytest.approx(3.0)
    assert versions == same
    assert sum(versions.values()) == 200
    assert set(versions) == {0, 7}


def test_what_comes_while_a_server_stands_waits_for_it_to_go_on() -> None:
    cluster = LiveCluster(speed().machine)
    server = Server(cluster, speed())
    cluster.run(server.pause())
    done = server.submit(Request(100, 200))
    server.release_cache()  # nothing is under way
    cluster.run()
    assert not done.triggered
    server.resume()
    cluster.run()
    assert done.value.finished


def test_an_answer_takes_about_two_events_whatever_its_length() -> None:
    for longest in (100, 3000):
        server, answers = play(Server, speed(), requests(4, 300, longest=longest))
        assert server.cluster.events < 2.5 * len(answers) + 100
