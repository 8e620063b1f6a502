from files.models.file import Chunk, Embedder, File, FileText, Posting, RecognisedPage
from files.models.reranker import Reranker
from files.models.speech_server import SpeechServer

__all__ = ["Chunk", "Embedder", "File", "FileText", "Posting", "RecognisedPage", "Reranker", "SpeechServer"]
