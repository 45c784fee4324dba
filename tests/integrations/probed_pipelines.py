"""Pipelines of both frameworks whose prompts the doctor looks at; they retrieve by the first letter of the question."""

from tests.conftest import require

NAMES = ("ash", "birch", "cedar", "elder", "fir")
TEXTS = {
    n: f"The {n} is a tree. " + f"Its {n} wood burns in many an oven. " * 6 + f"So much for the {n}." for n in NAMES
}
FOUND = {"A": NAMES[:4], "B": ("birch", "ash", "fir", "cedar")}
SHARED_FIRST = {**FOUND, "B": ("ash", "birch", "cedar", "fir")}
QUERIES = ["A tells of which trees?", "B knows what else about trees?"]


def langchain_parts():
    """Parts of a LangChain pipeline; ``retriever(table, metadata_of)`` takes the texts' names by letter."""
    require("langchain_core")
    require("langchain_classic")
    from types import SimpleNamespace

    from langchain_core.documents import Document
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.retrievers import BaseRetriever

    class Table(BaseRetriever):
        table: dict
        metadata_of: object = None

        def _get_relevant_documents(self, query, *, run_manager):
            names = self.table[query[0]]
            extra = self.metadata_of or (lambda question, rank: {})
            return [
                Document(id=n, page_content=TEXTS[n], metadata={"source": f"{n}.md", **extra(query, rank)})
                for rank, n in enumerate(names)
            ]

    def scores(question, rank):
        return {"score": 0.91 - 0.1 * rank - (0.0371 if question[0] == "B" else 0)}

    return SimpleNamespace(
        model=FakeListChatModel(responses=["So it is."]),
        retriever=lambda table=FOUND, metadata_of=None: Table(table=table, metadata_of=metadata_of),
        scores=scores,
        join=lambda documents: "\n\n".join(d.page_content for d in documents),
    )


def prompt_of(*messages):
    from langchain_core.prompts import ChatPromptTemplate

    return ChatPromptTemplate.from_messages(messages)


SYSTEM = "Answer from this context, briefly, and say so when you do not know.\n\n{context}"


def retrieval_chain(lc, retriever, *messages, **options):
    from langchain_classic.chains import create_retrieval_chain
    from langchain_classic.chains.combine_documents import create_stuff_documents_chain

    template = prompt_of(*(messages or (("system", SYSTEM), ("human", "{input}"))))
    return create_retrieval_chain(retriever, create_stuff_documents_chain(lc.model, template, **options))


def llama_index_parts():
    """Parts of a LlamaIndex pipeline; ``retriever(table, metadata_of)`` takes the texts' names by letter."""
    require("llama_index.core")
    from types import SimpleNamespace

    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
    from llama_index.core.llms.callbacks import llm_completion_callback
    from llama_index.core.schema import NodeWithScore, TextNode

    class Model(CustomLLM):
        chat_model: bool = True

        @property
        def metadata(self):
            return LLMMetadata(context_window=100_000, is_chat_model=self.chat_model)

        @llm_completion_callback()
        def complete(self, prompt, formatted=False, **options):
            return CompletionResponse(text="So it is.")

        @llm_completion_callback()
        def stream_complete(self, prompt, formatted=False, **options):
            yield CompletionResponse(text="So it is.", delta="So it is.")

    class Table(BaseRetriever):
        def __init__(self, table=FOUND, metadata_of=None):
            super().__init__()
            self.table, self.metadata_of = table, metadata_of or (lambda question, rank: {})

        def _retrieve(self, query_bundle):
            query = query_bundle.query_str
            return [
                NodeWithScore(node=TextNode(id_=n, text=TEXTS[n], metadata=self.metadata_of(query, rank)), score=0.5)
                for rank, n in enumerate(self.table[query[0]])
            ]

    def scores(question, rank):
        return {"file_name": "trees.md", "retrieval_score": 0.91 - 0.1 * rank - (0.0371 if question[0] == "B" else 0)}

    return SimpleNamespace(model=Model(), completions=Model(chat_model=False), retriever=Table, scores=scores)


def query_engine(li, *, model=None, retriever=None, **options):
    from llama_index.core.query_engine import RetrieverQueryEngine

    return RetrieverQueryEngine.from_args(retriever or li.retriever(), llm=model or li.model, **options)
