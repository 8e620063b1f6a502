from files.models.file import Chunk, Embedder, File, FileText, Posting
from files.models.reranker import Reranker

__all__ = ["Chunk", "Embedder", "File", "FileText", "Posting", "Reranker"]
