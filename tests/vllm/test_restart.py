"""The server goes and comes back (last of the files: starting takes longest)."""

import pytest

from contextpilot_core import ReuseEngine
from contextpilot_integrations.serving.client.client import ContextPilotClient
from tests.conftest import require
from tests.vllm.questions import made_up_document

openai = require("openai")
for module in ("zmq", "msgspec"):
    require(module)

from tests.vllm.following import following, forget_everything  # noqa: E402

BLOCKS = [made_up_document("restart", number) for number in range(5)]


def test_nothing_is_believed_of_a_server_that_was_away(server):
    forget_everything(server)
    with (
        following(server) as follower,
        openai.OpenAI(base_url=server.base_url, api_key="-", max_retries=0, timeout=60) as library,
    ):
        follower.settle()
        client = ContextPilotClient(library, model=server.model, engine=ReuseEngine(mirror=follower.mirror))

        def observed(question):
            return client.chat(BLOCKS, question, max_tokens=2).observation

        observed("What is it?")
        before = observed("What else?")
        assert before.predicted == before.reported > 300

        server.stop()
        follower.wait_until(lambda status: not status.live)
        assert client.engine.stats().source == "estimate"
        committed = client.engine.stats().committed
        with pytest.raises(openai.APIConnectionError):
            observed("Is anybody there?")
        assert client.engine.stats().committed == committed

        server.start()
        follower.settle()
        assert follower.subscriber.status.restarts == 1
        first, second = observed("And now?"), observed("And then?")
        assert first.predicted == first.reported == 0
        assert second.predicted == second.reported > 300
