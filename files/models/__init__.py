from files.models.file import Chunk, Embedder, File, FileText, Posting

__all__ = ["Chunk", "Embedder", "File", "FileText", "Posting"]
