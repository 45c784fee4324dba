"""One application process: plans what it is told to, and says on its standard output how far it is.

    python -m tests.integrations.redis_worker URL NUMBER SNAPSHOT_EVERY

Lines in: "go N" plans until N are made in all, "sync" answers with the digest of the shared state, "end" ends it.
"""

import json
import random
import sys

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_integrations.stores import RedisStore
from tests.core.conftest import body

SECRET = "a secret for the tests alone"
CONFIG = EngineConfig(cache_tokens=20_000, max_messages=200)
TEXTS = [body(name, 30) for name in range(120)]


def main() -> None:
    url, number, every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(number)
    planned = 0
    with RedisStore(url, secret=SECRET, snapshot_every=every) as store:
        engine = ReuseEngine(CONFIG, journal=store)
        print("ready", flush=True)
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "go":
                while planned < int(rest[0]):
                    plan_one(engine, chance)
                    planned += 1
                answer = {"planned": engine.stats().planned}
            elif word == "sync":
                done = store.synchronize(20)
                engine.check_integrity()
                state = store._state
                answer = {"done": done, "digest": store.digest(), "own": state.last}
                answer |= {"entries": state.snapshot().entries, "numbers": dict(state.snapshot().numbers)}
            else:
                break
            print(json.dumps(answer), flush=True)


def plan_one(engine: ReuseEngine, chance: random.Random) -> None:
    """Some topic's texts; some plans wait for their confirmation, some go on with a conversation."""
    topic = chance.randrange(20)
    blocks = [TEXTS[6 * topic + place] for place in chance.sample(range(6), 4)]
    kind = chance.random()
    plan = engine.plan(blocks, query="q", remember=0.1 <= kind < 0.2, commit=kind > 0.1)
    if kind < 0.05:
        engine.abandon(plan)
    elif kind < 0.1:
        engine.commit(plan)
    elif kind < 0.2:
        engine.plan(blocks[:2], messages=plan.messages, query="r")
    elif kind < 0.25:
        engine.evict([plan.request_id])


if __name__ == "__main__":
    main()
