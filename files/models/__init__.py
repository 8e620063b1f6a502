from files.models.file import Chunk, Embedder, File, FileText, Posting, RecognisedPage
from files.models.reranker import Reranker

__all__ = ["Chunk", "Embedder", "File", "FileText", "Posting", "RecognisedPage", "Reranker"]
