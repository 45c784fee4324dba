"""Prompts of known shape for the tests of the diagnosis."""

from hypothesis import strategies as st

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")
DOCS = {
    n: f"About {n}: {n} came first. " + f"The {n} thing is told here in many words. " * 5 + f"So ends {n}."
    for n in NAMES
}
FIRST = NAMES[:4]
REORDERED = ("alpha", "beta", "gamma", "epsilon")
RETRIEVED = ("beta", "alpha", "epsilon", "gamma")
HEAD = "You are an assistant for question-answering tasks. Use the given context to answer the question."

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
tool_lists = st.lists(st.dictionaries(st.sampled_from(["name", "type", "function", "x"]), json_values), max_size=4)


def context(names, separator="\n\n"):
    return separator.join(DOCS[name] for name in names)


def stuffed(names, question, head=HEAD):
    return [{"role": "system", "content": f"{head}\n\n{context(names)}"}, {"role": "user", "content": question}]


def templated(names, question):
    return f"{HEAD}\n\nContext:\n{context(names)}\n\nQuestion: {question}\nAnswer:"


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": f"Does what {name} does.", "parameters": parameters}
    return {"type": "function", "function": function}


def only(diagnosis):
    assert len(diagnosis.pairs) == 1
    return diagnosis.pairs[0]
