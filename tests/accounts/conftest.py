from collections.abc import Iterator

import pytest

from accounts.models import User
from tests.accounts.programs import Program
from tests.accounts.receiver import Receiver, receiving
from tests.conftest import PASSWORD


@pytest.fixture
def olga(db: None) -> User:
    return User.objects.create_user("olga", password=PASSWORD)


@pytest.fixture
def program(olga: User) -> Program:
    return Program(olga, "admin")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server
