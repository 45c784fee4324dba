"""What an application writes type-checks, with the types of the packages that it is handed to."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import require
from tests.snippets import ROOT, snippets

APPLICATION = """
from openai import AsyncOpenAI, OpenAI

from contextpilot_core import ReuseEngine
from contextpilot_core.diagnose import canonical_tools

plan = ReuseEngine().plan(["a", "b"], query="q")
tools = canonical_tools([{"type": "function", "function": {"name": "f", "parameters": {}}}])
reply = OpenAI().chat.completions.create(model="m", messages=list(plan.messages), tools=tools)
for chunk in OpenAI().chat.completions.create(model="m", messages=plan.messages, stream=True):
    print(chunk.choices)
history = [*plan.messages, {"role": "assistant", "content": reply.choices[0].message.content}]
ReuseEngine().plan(["a"], query="r", messages=history)
ReuseEngine().plan(["a"], query="r", messages=[*plan.messages, reply.choices[0].message.model_dump()])
role: str = plan.messages[0]["role"]


async def ask(client: AsyncOpenAI) -> str | None:
    answer = await client.chat.completions.create(model="m", messages=list(plan.messages))
    return answer.choices[0].message.content
"""


def test_the_readme_and_an_application_with_its_own_client(tmp_path: Path):
    require("mypy")
    require("openai")
    readme = "\n".join(snippet.code for snippet in snippets(ROOT / "README.md"))
    for name, code in (("readme", readme), ("application", APPLICATION), ("wrong", "role: int = str()")):
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    files = [str(path) for path in sorted(tmp_path.glob("*.py"))]
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", *files], capture_output=True, text=True, cwd=ROOT)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1 and "wrong.py:1: error: Incompatible types" in errors[0], done.stdout + done.stderr
