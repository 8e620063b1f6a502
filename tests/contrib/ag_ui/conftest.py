from tests.chat.conftest import guarded

__all__ = ["guarded"]
