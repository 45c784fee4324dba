"""Chats that are closed at the end."""

import pytest


@pytest.fixture
def talk():
    from tests.integrations.llama_index_chats import Chat  # the package may be missing

    made = []

    def make(*args, **options):
        made.append(Chat(*args, **options))
        return made[-1]

    yield make
    for chat in made:
        chat.close()
