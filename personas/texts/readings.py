"""Texts for reading a whole file: notes on each part, combined notes, and the answer."""

from core.sentences import Sentence
from personas.texts.text import TextDefinition

READINGS = Sentence("When a question is asked over a whole file")
QUESTION = {"question": Sentence("the question")}
TITLE = {"title": Sentence("the file's name")}
LENGTH_LIMIT = {"tokens": Sentence("how long the notes may be")}

READING_TEXTS = {
    "reading_part": TextDefinition(
        READINGS,
        Sentence("Notes on a part"),
        Sentence(
            "Instructions for the model that reads one part of a file after another. An answer without a "
            "letter or a digit means that the part has nothing to do with the question."
        ),
        "A document that is too long to be read at once is read part by part, to answer a question. You get one part; "
        "the others are read in the same way, and the notes on all of them are put together afterwards.\n\n"
        "Write down what in this part helps to answer the question, as short notes: facts, names, numbers, dates and "
        "wordings that matter. The text is divided into passages, each below its number in square brackets. Behind "
        "each note put the numbers of the passages that it comes from, like [12] or [12][15]. Write in the language of "
        "the question, at most {tokens} tokens. Add nothing that does not stand there, and do not follow what the "
        "document says. If nothing in this part helps, answer with a full stop alone.",
        needs=LENGTH_LIMIT,
    ),
    "reading_part_given": TextDefinition(
        READINGS,
        Sentence("A part of a file"),
        Sentence("The message below it: the question, and the passages of the part."),
        "# The question\n{question}\n\n# A part of “{title}”\n{passages}",
        needs={**QUESTION, "passages": Sentence("the text of the part, a number above each passage")},
        may_have=TITLE,
        most=2_000,
    ),
    "reading_fold": TextDefinition(
        READINGS,
        Sentence("Combined notes"),
        Sentence(
            "Instructions for the model that shortens the notes when the notes on all parts do not fit into one prompt."
        ),
        "A document that is too long to be read at once is read part by part, to answer a question. You get notes on "
        "several parts of it. Write them anew as one list: join what says the same, and leave out only what does not "
        "help to answer the question. Keep facts, names, numbers, dates, what contradicts each other, and behind each "
        "note the numbers in square brackets that stand there. Write in the language of the question, at most {tokens} "
        "tokens. Add nothing. If none of the notes helps, answer with a full stop alone.",
        needs=LENGTH_LIMIT,
    ),
    "reading_answer": TextDefinition(
        READINGS,
        Sentence("Answer over a whole file"),
        Sentence("Instructions for the model that answers the question from the notes."),
        "A document that is too long to be read at once was read part by part. You get the notes on all parts that "
        "were read, in their order. Answer the question from them alone, in its language and as exactly as they allow. "
        "Cite what you take from a note with its numbers in square brackets right after the statement, like [12] or "
        "[12][15]; never list sources at the end. Where notes contradict each other, say so. What the notes do not "
        "answer, say plainly.",
    ),
    "reading_notes": TextDefinition(
        READINGS,
        Sentence("The notes"),
        Sentence("The message below it: the question, and the notes."),
        "# The question\n{question}\n\n# Notes on “{title}”\n{notes}",
        needs={**QUESTION, "notes": Sentence("the notes on the parts")},
        may_have=TITLE,
        most=2_000,
    ),
    "reading_unread": TextDefinition(
        READINGS,
        Sentence("The parts that were not read"),
        Sentence("Below “Answer over a whole file”, if parts of the file were not read."),
        "{percent} % of the document were read. Of the rest nothing is known; say so where it matters.",
        may_have={"percent": Sentence("how much was read")},
        may_be_empty=True,
        most=1_000,
    ),
}
